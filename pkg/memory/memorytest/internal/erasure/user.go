package erasure

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func eraseTests() fixture.Tests {
	return fixture.Tests{
		"Delete_ReportsWhatItRemoved":             deleteReportsWhatItRemoved,
		"EraseUser_LeavesNothing":                 eraseUserLeavesNothing,
		"EraseUser_RejectsNewSessionsUntilItEnds": eraseUserRejectsNewSessions,
		"EraseUser_RejectsLateWriters":            eraseUserRejectsLateWriters,
		"EraseUser_KeepsOtherUsers":               eraseUserKeepsOtherUsers,
		"EraseUser_WorksForAnUnknownUser":         eraseUserWorksForAnUnknownUser,
	}
}

// eraseUser erases a user and deletes the sessions that the result names. It repeats both until the result names
// no session.
func eraseUser(t *testing.T, store memory.Store, user string) memory.ErasureReport {
	t.Helper()
	for {
		e, err := store.EraseUser(t.Context(), fixture.Tenant, user)
		require.NoError(t, err)
		if len(e.Sessions) == 0 {
			return e.Report
		}
		for _, id := range e.Sessions {
			fixture.DeleteSession(t, store, session.Ref{Tenant: fixture.Tenant, Session: id})
		}
	}
}

func deleteReportsWhatItRemoved(t *testing.T, store memory.Store) {
	h := fixture.OpenTurnOfUser(t, store, fixture.UniqueName("alice"))
	fixture.UpdateState(t, store, fixture.NewStateUpdate(h.Ref, "mood", `"calm"`))
	fixture.PutArtifact(t, store, h, "report", "so it is")
	fixture.CommitStep(t, store, fixture.NewCommit(h.Ref, session.Turn{ID: h.TurnID, Epoch: h.Epoch, Sequence: 1}, "hi", session.OutcomeCompleted))
	first, err := store.DeleteSession(t.Context(), h.Ref)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{
		memory.KindMessages: 2, memory.KindTurns: 1, memory.KindStateKeys: 1, memory.KindArtifacts: 1, memory.KindArtifactBytes: 8,
	}, first.Removed)
	require.Equal(t, h.Ref.Session, first.Session)
	require.False(t, first.Ended.IsZero())
	require.Len(t, first.Remainders, 1)
	require.Equal(t, first.Ended.Add(memory.Retention), first.Remainders[0].Until)
	again, err := store.DeleteSession(t.Context(), h.Ref)
	require.NoError(t, err)
	require.Equal(t, first, again, "the mark is the receipt")
}

func eraseUserLeavesNothing(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	one, two := fixture.OpenTurnOfUser(t, store, user), fixture.OpenTurnOfUser(t, store, user)
	fixture.UpdateState(t, store, fixture.NewStateUpdate(one.Ref, "user:name", `"Alice"`))
	fixture.PutArtifact(t, store, two, "user:profile", "Alice")
	e := eraseUser(t, store, user)
	require.Equal(t, user, e.User)
	require.Equal(t, map[string]int64{memory.KindUserState: 1, memory.KindUserArtifacts: 1, memory.KindUserBytes: 5}, e.Removed)
	require.Empty(t, fixture.ListSessions(t, store, user))
	require.Empty(t, fixture.SearchMemory(t, store, user, "hello"))

	// A new user with the same id finds no data.
	next := fixture.OpenTurnOfUser(t, store, user)
	require.NotContains(t, fixture.GetState(t, store, next.Ref).Values, "user:name")
	require.Empty(t, fixture.ListArtifacts(t, store, next.Ref))
	require.Equal(t, 1, fixture.PutArtifact(t, store, next, "user:profile", "another").Version)
	fixture.UpdateState(t, store, fixture.NewStateUpdate(next.Ref, "user:name", `"Another"`))
	require.JSONEq(t, `"Another"`, string(fixture.GetState(t, store, next.Ref).Values["user:name"]))
}

func eraseUserRejectsNewSessions(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	old := fixture.OpenTurnOfUser(t, store, user)
	e, err := store.EraseUser(t.Context(), fixture.Tenant, user)
	require.NoError(t, err)
	require.Equal(t, []string{old.Ref.Session}, e.Sessions)
	ask := fixture.NewBegin(fixture.NewRef(), "t1", "hello")
	ask.User = user
	_, err = store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: fixture.NewRef(), Create: true, User: user})
	fixture.RequireMode(t, err, failure.SessionDeleted)
	eraseUser(t, store, user)
	require.Empty(t, fixture.ListSessions(t, store, user), "the rejected calls created no session")
	fixture.OpenTurnOfUser(t, store, user)
}

func eraseUserRejectsLateWriters(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	h := fixture.OpenTurnOfUser(t, store, user)
	fixture.PutArtifact(t, store, h, "user:profile", "Alice")
	eraseUser(t, store, user)
	next := fixture.OpenTurnOfUser(t, store, user)
	for name, call := range fixture.TurnCalls(store, h) {
		fixture.RequireMode(t, call(t), failure.SessionDeleted)
		require.Error(t, call(t), name)
	}
	_, err := store.UpdateState(t.Context(), fixture.NewStateUpdate(h.Ref, "user:name", `"Alice"`))
	fixture.RequireMode(t, err, failure.SessionDeleted)
	fixture.RequireMode(t, store.DeleteArtifact(t.Context(), h, "user:profile", 0), failure.SessionDeleted)
	require.NotContains(t, fixture.GetState(t, store, next.Ref).Values, "user:name")
	require.Empty(t, fixture.ListArtifacts(t, store, next.Ref))
}

func eraseUserKeepsOtherUsers(t *testing.T, store memory.Store) {
	alice, bob := fixture.OpenTurnOfUser(t, store, fixture.UniqueName("alice")), fixture.OpenTurnOfUser(t, store, fixture.UniqueName("bob"))
	key := "app:" + fixture.UniqueName("theme")
	fixture.UpdateState(t, store, fixture.NewStateUpdate(alice.Ref, key, `"dark"`))
	fixture.UpdateState(t, store, fixture.NewStateUpdate(bob.Ref, "user:name", `"Bob"`))
	fixture.PutArtifact(t, store, bob, "user:profile", "Bob")
	before := fixture.ReadSession(t, store, bob.Ref)
	eraseUser(t, store, fixture.GetSession(t, store, alice.Ref).User)
	fixture.RequireEqual(t, before, fixture.ReadSession(t, store, bob.Ref))
	require.JSONEq(t, `"dark"`, string(fixture.GetState(t, store, bob.Ref).Values[key]), "it is the tenant's")
}

func eraseUserWorksForAnUnknownUser(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("nobody")
	for range 2 {
		require.Empty(t, eraseUser(t, store, user).Removed)
	}
}
