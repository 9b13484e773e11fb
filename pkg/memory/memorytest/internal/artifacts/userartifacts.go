package artifacts

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func userArtifactTests() fixture.Tests {
	return fixture.Tests{
		"UserArtifact_IsVisibleInAllSessionsOfTheUser":    userArtifactIsVisibleInAllSessionsOfTheUser,
		"UserArtifact_OutlivesTheSession":                 userArtifactOutlivesTheSession,
		"UserArtifact_NeedsAUser":                         userArtifactNeedsAUser,
		"UserArtifact_WritesAreFenced":                    userArtifactWritesAreFenced,
		"UserArtifact_IsNumberedAcrossConcurrentSessions": userArtifactIsNumberedAcrossConcurrentSessions,
		"UserArtifact_LeavesNoContentInTheSession":        userArtifactLeavesNoContentInTheSession,
		"UserArtifact_PutIsRepeatable":                    userArtifactPutIsRepeatable,
		"UserArtifact_RejectsTooManyVersions":             userArtifactRejectsTooManyVersions,
		"UserArtifact_RejectsTooManyBytes":                userArtifactRejectsTooManyBytes,
		"UserArtifact_DeleteKeepsSharedContent":           userArtifactDeleteKeepsSharedContent,
	}
}

// User artifacts keep their names and versions. They can be read, listed and deleted like the artifacts of the
// session.
// Req: AD-23
func userArtifactIsVisibleInAllSessionsOfTheUser(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	one, two := fixture.OpenTurnOfUser(t, store, user), fixture.OpenTurnOfUser(t, store, user)
	bob, nobody := fixture.OpenTurnOfUser(t, store, fixture.UniqueName("bob")), fixture.OpenTurn(t, store)
	text := fixture.LongText(memory.ArtifactChunk + 1)
	first := fixture.PutArtifact(t, store, one, "user:profile", "in short")
	require.Equal(t, memory.Artifact{
		Content: fixture.ContentOf("in short"), Name: "user:profile", MediaType: "text/plain", Version: 1, Turn: "t1", Created: first.Created,
	}, first)
	own := fixture.PutArtifact(t, store, one, "profile", "of the session")
	require.Equal(t, 1, own.Version, "the names have nothing to do with each other")
	second := fixture.PutArtifact(t, store, two, "user:profile", text)
	require.Equal(t, 2, second.Version)

	require.Equal(t, []memory.Artifact{own, first, second}, fixture.ListArtifacts(t, store, one.Ref))
	require.Equal(t, []memory.Artifact{first, second}, fixture.ListArtifacts(t, store, two.Ref))
	for _, h := range []memory.Lease{one, two} {
		for version, want := range []memory.Artifact{second, first, second} {
			a, err := store.GetArtifact(t.Context(), h.Ref, "user:profile", version)
			require.NoError(t, err)
			require.Equal(t, want, a)
		}
		require.Equal(t, "in short", fixture.ReadContent(t, store, h.Ref, first.Content, 0))
		require.Equal(t, text, fixture.ReadContent(t, store, h.Ref, second.Content, 0))
		require.Equal(t, text[1:], fixture.ReadContent(t, store, h.Ref, second.Content, 1))
	}
	for _, h := range []memory.Lease{bob, nobody} {
		require.Empty(t, fixture.ListArtifacts(t, store, h.Ref))
		_, err := store.GetArtifact(t.Context(), h.Ref, "user:profile", 0)
		fixture.RequireMode(t, err, failure.NotFound)
		_, err = store.ReadArtifact(t.Context(), h.Ref, first.Content, 0)
		fixture.RequireMode(t, err, failure.NotFound)
	}

	require.NoError(t, store.DeleteArtifact(t.Context(), two, "user:profile", 1))
	require.Equal(t, []memory.Artifact{own, second}, fixture.ListArtifacts(t, store, one.Ref))
	_, err := store.GetArtifact(t.Context(), one.Ref, "user:profile", 1)
	fixture.RequireMode(t, err, failure.NotFound)
	for range 2 { // a missing version is not an error
		require.NoError(t, store.DeleteArtifact(t.Context(), one, "user:profile", 0))
	}
	require.Empty(t, fixture.ListArtifacts(t, store, two.Ref))
	require.Equal(t, []memory.Artifact{own}, fixture.ListArtifacts(t, store, one.Ref))
	require.Equal(t, 3, fixture.PutArtifact(t, store, one, "user:profile", "anew").Version, "a number is not used again")
}

func userArtifactOutlivesTheSession(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	one, two := fixture.OpenTurnOfUser(t, store, user), fixture.OpenTurnOfUser(t, store, user)
	a := fixture.PutArtifact(t, store, one, "user:a", "of one")
	b := fixture.PutArtifact(t, store, two, "user:b", "of two")
	_, err := store.FailTurn(t.Context(), memory.Fail{
		Ref: one.Ref, TurnID: one.TurnID, Epoch: one.Epoch, Outcome: session.OutcomeFailed, Failure: failure.New(failure.Unknown, "test", "it failed"),
	})
	require.NoError(t, err)
	require.NoError(t, store.ClearSession(t.Context(), one.Ref))
	require.Equal(t, []memory.Artifact{a, b}, fixture.ListArtifacts(t, store, one.Ref))
	fixture.DeleteSession(t, store, two.Ref)
	require.Equal(t, []memory.Artifact{a, b}, fixture.ListArtifacts(t, store, one.Ref))
	require.Equal(t, "of two", fixture.ReadContent(t, store, one.Ref, b.Content, 0))
	fixture.DeleteSession(t, store, one.Ref)
	require.Equal(t, []memory.Artifact{a, b}, fixture.ListArtifacts(t, store, fixture.OpenTurnOfUser(t, store, user).Ref), "a session that comes later")
}

func userArtifactNeedsAUser(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: fixture.UploadContent(t, store, h, "text"), Name: "user:a"})
	fixture.RequireMode(t, err, failure.UserInvalidInput, "session_id", h.Ref.Session)
	require.ErrorContains(t, err, "has no user")
	err = store.DeleteArtifact(t.Context(), h, "user:a", 0)
	fixture.RequireMode(t, err, failure.UserInvalidInput, "session_id", h.Ref.Session)
	_, err = store.GetArtifact(t.Context(), h.Ref, "user:a", 0)
	fixture.RequireMode(t, err, failure.NotFound)
	require.Empty(t, fixture.ListArtifacts(t, store, h.Ref))
}

func userArtifactWritesAreFenced(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	ask := fixture.NewBegin(fixture.NewRef(), "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	old := fixture.LeaseOf(ask.Ref, begun.Turn)
	a := fixture.PutArtifact(t, store, old, "user:a", "one")
	c := fixture.UploadContent(t, store, old, "two")
	ask.LostEpoch = old.Epoch
	taken, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	next := fixture.LeaseOf(ask.Ref, taken.Turn)
	for name, h := range map[string]memory.Lease{"fenced": old, "unknown": {Ref: ask.Ref, TurnID: "t9", Epoch: next.Epoch}} {
		_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "user:a"})
		require.Error(t, err, name)
		require.Error(t, store.DeleteArtifact(t.Context(), h, "user:a", 0), name)
	}
	_, err = store.PutArtifact(t.Context(), old, memory.Artifact{Content: c, Name: "user:a"})
	fixture.RequireMode(t, err, failure.Fenced)
	fixture.RequireMode(t, store.DeleteArtifact(t.Context(), old, "user:a", 0), failure.Fenced)
	require.Equal(t, []memory.Artifact{a}, fixture.ListArtifacts(t, store, ask.Ref))

	second, err := store.PutArtifact(t.Context(), next, memory.Artifact{Content: c, Name: "user:a"})
	require.NoError(t, err, "the successor has what was staged")
	require.Equal(t, 2, second.Version)
	fixture.CommitStep(t, store, fixture.NewCommit(ask.Ref, taken.Turn, "done", session.OutcomeCompleted))
	_, err = store.PutArtifact(t.Context(), next, memory.Artifact{Content: c, Name: "user:a"})
	fixture.RequireMode(t, err, failure.TurnNotOpen)
	fixture.RequireMode(t, store.DeleteArtifact(t.Context(), next, "user:a", 0), failure.TurnNotOpen)
}

// userArtifactIsNumberedAcrossConcurrentSessions writes versions of one artifact from many sessions of a user
// at once.
func userArtifactIsNumberedAcrossConcurrentSessions(t *testing.T, store memory.Store) {
	const sessions, each = 4, 4
	user := fixture.UniqueName("alice")
	holds := make([]memory.Lease, sessions)
	for i := range holds {
		holds[i] = fixture.OpenTurnOfUser(t, store, user)
	}
	got := make([][]int, sessions)
	var all sync.WaitGroup
	for i, h := range holds {
		all.Go(func() {
			for n := range each {
				text := fmt.Sprint(i, "-", n)
				c := fixture.ContentOf(text)
				if err := store.AppendArtifact(t.Context(), h, c, 0, []byte(text)); err != nil {
					t.Errorf("append: %v", err)
				}
				a, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "user:log"})
				if err != nil {
					t.Errorf("put: %v", err)
				}
				got[i] = append(got[i], a.Version)
			}
		})
	}
	all.Wait()
	seen := map[int]bool{}
	for _, versions := range got {
		require.IsIncreasing(t, versions)
		for _, v := range versions {
			require.False(t, seen[v], "version %d was given twice", v)
			seen[v] = true
		}
	}
	stored := fixture.ListArtifacts(t, store, holds[0].Ref)
	require.Len(t, stored, sessions*each)
	require.Equal(t, sessions*each, stored[len(stored)-1].Version)
}

func userArtifactLeavesNoContentInTheSession(t *testing.T, store memory.Store) {
	h := fixture.OpenTurnOfUser(t, store, fixture.UniqueName("alice"))
	c := fixture.PutArtifact(t, store, h, "user:a", "text").Content
	require.Zero(t, fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes, "it is not the session's")
	stored, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err)
	require.Zero(t, stored, "what was staged left the session with it")
	fixture.PutArtifact(t, store, h, "own", "text")
	fixture.PutArtifact(t, store, h, "user:b", "text")
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "user:a", 0))
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "user:b", 0))
	require.Equal(t, "text", fixture.ReadContent(t, store, h.Ref, c, 0), "the session's own stays")
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "own", 0))
	_, err = store.ReadArtifact(t.Context(), h.Ref, c, 0)
	fixture.RequireMode(t, err, failure.NotFound)
}

// userArtifactPutIsRepeatable repeats the put as if its answer had been lost. By then the content has moved from
// the session to the user.
func userArtifactPutIsRepeatable(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	h := fixture.OpenTurnOfUser(t, store, user)
	first := fixture.PutArtifact(t, store, h, "user:a", "text")
	for range 2 {
		again, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: first.Content, Name: "user:a"})
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	b, err := store.PutArtifact(t.Context(), fixture.OpenTurnOfUser(t, store, user), memory.Artifact{Content: first.Content, Name: "user:b"})
	require.NoError(t, err, "what the user has need not be sent again")
	require.Equal(t, 1, b.Version)
	_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: fixture.ContentOf("unknown"), Name: "user:a"})
	fixture.RequireMode(t, err, failure.BaseMismatch, "offset", "0")
}

func userArtifactRejectsTooManyVersions(t *testing.T, store memory.Store) {
	h := fixture.OpenTurnOfUser(t, store, fixture.UniqueName("alice"))
	contents := []memory.Content{fixture.PutArtifact(t, store, h, "one", "one").Content, fixture.PutArtifact(t, store, h, "two", "two").Content}
	for i := range memory.MaxArtifacts {
		_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: contents[i%2], Name: "user:a"})
		require.NoError(t, err)
	}
	one := memory.Artifact{Content: contents[0], Name: "user:a"}
	_, err := store.PutArtifact(t.Context(), h, one)
	fixture.RequireMode(t, err, failure.ResourceQuota)
	fixture.PutArtifact(t, store, h, "three", "the session has room")
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "user:a", 1))
	_, err = store.PutArtifact(t.Context(), h, one)
	require.NoError(t, err)
	require.Len(t, fixture.ListArtifacts(t, store, h.Ref), memory.MaxArtifacts+3)
}

func userArtifactRejectsTooManyBytes(t *testing.T, store memory.Store) {
	h := fixture.OpenTurnOfUser(t, store, fixture.UniqueName("alice"))
	text := fixture.LongText(16 << 20)
	c := fixture.PutArtifact(t, store, h, "own", text).Content
	for i := range memory.MaxSessionArtifactBytes / len(text) {
		_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: fmt.Sprint("user:", i)})
		require.NoError(t, err)
	}
	_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "user:more"})
	fixture.RequireMode(t, err, failure.ResourceQuota)
	_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: fixture.UploadContent(t, store, h, "x"), Name: "user:more"})
	fixture.RequireMode(t, err, failure.ResourceQuota)
	fixture.PutArtifact(t, store, h, "more", "x")
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "user:0", 0))
	fixture.PutArtifact(t, store, h, "user:more", "x")
}

func userArtifactDeleteKeepsSharedContent(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	one, two := fixture.OpenTurnOfUser(t, store, user), fixture.OpenTurnOfUser(t, store, user)
	text := fixture.LongText(memory.ArtifactChunk + 1)
	c := fixture.PutArtifact(t, store, one, "user:a", text).Content
	fixture.PutArtifact(t, store, two, "user:b", text)
	require.NoError(t, store.DeleteArtifact(t.Context(), two, "user:a", 0))
	require.Equal(t, text, fixture.ReadContent(t, store, one.Ref, c, 0))
	require.NoError(t, store.DeleteArtifact(t.Context(), one, "user:b", 1))
	_, err := store.ReadArtifact(t.Context(), two.Ref, c, 0)
	fixture.RequireMode(t, err, failure.NotFound)
	require.Equal(t, text, fixture.ReadContent(t, store, two.Ref, fixture.PutArtifact(t, store, one, "user:a", text).Content, 0))
}
