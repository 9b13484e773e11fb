package artifacts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func versionTests() fixture.Tests {
	return fixture.Tests{
		"Artifact_DeleteRemovesVersions":              artifactDeleteRemovesVersions,
		"Artifact_DeleteKeepsSharedContent":           artifactDeleteKeepsSharedContent,
		"Artifact_RejectsTooManyVersions":             artifactRejectsTooManyVersions,
		"Artifact_RejectsTooManyBytes":                artifactRejectsTooManyBytes,
		"Artifact_StagedBytesCountTowardLimits":       artifactStagedBytesCountTowardLimits,
		"Artifact_StagedContentsCountTowardLimits":    artifactStagedContentsCountTowardLimits,
		"Artifact_RejectsUnknownSessionsAndArtifacts": artifactRejectsUnknownSessionsAndArtifacts,
		"Artifact_NamesMayHoldAnyText":                artifactNamesMayHoldAnyText,
		"Artifact_RejectsInvalidNames":                artifactRejectsInvalidNames,
		"Artifact_SessionsAreIsolated":                artifactSessionsAreIsolated,
		"Artifact_OutlivesTheTurn":                    artifactOutlivesTheTurn,
	}
}

func artifactDeleteRemovesVersions(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	remove := func(name string, version int) {
		t.Helper()
		for range 2 { // a missing version is not an error
			require.NoError(t, store.DeleteArtifact(t.Context(), h, name, version))
		}
	}
	other := fixture.PutArtifact(t, store, h, "other", "stays")
	var versions []memory.Artifact
	for i := range 4 {
		versions = append(versions, fixture.PutArtifact(t, store, h, "a", fmt.Sprint(i)))
	}
	remove("a", 2)
	remove("a", 4)
	remove("a", 9)
	remove("b", 0)
	require.Equal(t, []memory.Artifact{versions[0], versions[2], other}, fixture.ListArtifacts(t, store, h.Ref))
	require.EqualValues(t, 2+len("stays"), fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes)
	latest, err := store.GetArtifact(t.Context(), h.Ref, "a", 0)
	require.NoError(t, err)
	require.Equal(t, versions[2], latest)
	_, err = store.GetArtifact(t.Context(), h.Ref, "a", 2)
	fixture.RequireMode(t, err, failure.NotFound)
	_, err = store.ReadArtifact(t.Context(), h.Ref, versions[1].Content, 0)
	fixture.RequireMode(t, err, failure.NotFound)

	require.Equal(t, 5, fixture.PutArtifact(t, store, h, "a", "new").Version, "a number is not used again")
	remove("a", 0)
	require.Equal(t, []memory.Artifact{other}, fixture.ListArtifacts(t, store, h.Ref))
	require.Equal(t, 6, fixture.PutArtifact(t, store, h, "a", "new").Version)
}

func artifactDeleteKeepsSharedContent(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	text := fixture.LongText(memory.ArtifactChunk + 1)
	c := fixture.PutArtifact(t, store, h, "a", text).Content
	fixture.PutArtifact(t, store, h, "b", text)
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "a", 0))
	require.Equal(t, text, fixture.ReadContent(t, store, h.Ref, c, 0))
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "b", 1))
	_, err := store.ReadArtifact(t.Context(), h.Ref, c, 0)
	fixture.RequireMode(t, err, failure.NotFound)
	stored, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err)
	require.Zero(t, stored)
	fixture.PutArtifact(t, store, h, "c", text)
}

func artifactRejectsTooManyVersions(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	contents := []memory.Content{fixture.UploadContent(t, store, h, "one"), fixture.UploadContent(t, store, h, "two")}
	for i := range memory.MaxArtifacts {
		_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: contents[i%2], Name: "a"})
		require.NoError(t, err)
	}
	one := memory.Artifact{Content: contents[0], Name: "a"}
	_, err := store.PutArtifact(t.Context(), h, one)
	fixture.RequireMode(t, err, failure.ResourceQuota)
	again, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: contents[1], Name: "a"})
	require.NoError(t, err, "it is the latest")
	require.Equal(t, memory.MaxArtifacts, again.Version)
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "a", 1))
	_, err = store.PutArtifact(t.Context(), h, one)
	require.NoError(t, err)
	require.Len(t, fixture.ListArtifacts(t, store, h.Ref), memory.MaxArtifacts)
}

func artifactRejectsTooManyBytes(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	text := fixture.LongText(16 << 20)
	c := fixture.UploadContent(t, store, h, text)
	for i := range memory.MaxSessionArtifactBytes / len(text) {
		_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	require.EqualValues(t, memory.MaxSessionArtifactBytes, fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes)
	_, err := store.StageArtifact(t.Context(), h, fixture.ContentOf("x"))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Error(t, store.AppendArtifact(t.Context(), h, fixture.ContentOf("x"), 0, []byte("x")))
	stored, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err, "it is there")
	require.Equal(t, c.Size, stored)
	_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "more"})
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "0", 0))
	fixture.PutArtifact(t, store, h, "more", "x")
}

// artifactStagedBytesCountTowardLimits checks that content counts as soon as it is staged, even if it is never
// completed.
func artifactStagedBytesCountTowardLimits(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	stage := func(text string, size int64) (int64, error) {
		c := fixture.ContentOf(text)
		c.Size = size
		return store.StageArtifact(t.Context(), h, c)
	}
	for i := range memory.MaxSessionArtifactBytes / memory.MaxArtifactBytes {
		size := int64(memory.MaxArtifactBytes)
		if i == 0 {
			size -= 3
		}
		for range 2 { // repeated staging counts once
			_, err := stage(fmt.Sprint(i), size)
			require.NoError(t, err)
		}
	}
	_, err := stage("more", 4)
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Zero(t, fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes)

	// Deleting staged content makes room for other content. Content that is already stored does not count twice.
	wrong := memory.Content{SHA256: fixture.ContentOf("abc").SHA256, Size: 3}
	for range 2 {
		fixture.RequireMode(t, store.AppendArtifact(t.Context(), h, wrong, 0, []byte("???")), failure.UserInvalidInput)
	}
	fixture.PutArtifact(t, store, h, "a", "abc")
	_, err = stage("x", 1)
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "a", 0))
	_, err = stage("x", 1)
	require.NoError(t, err)
}

func artifactStagedContentsCountTowardLimits(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	fixture.PutArtifact(t, store, h, "a", "abc")
	for i := range memory.MaxArtifacts - 1 {
		_, err := store.StageArtifact(t.Context(), h, fixture.ContentOf(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	_, err := store.StageArtifact(t.Context(), h, fixture.ContentOf("one more"))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	fixture.PutArtifact(t, store, h, "b", "0") // the content was staged before
}

func artifactRejectsUnknownSessionsAndArtifacts(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.ListArtifacts(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	for range 2 {
		_, err = store.GetArtifact(t.Context(), ref, "a", 0)
		fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
		_, err = store.ReadArtifact(t.Context(), ref, fixture.ContentOf("x"), 0)
		fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
		if s, _ := store.GetSession(t.Context(), ref); s.ID == "" {
			fixture.BeginTurn(t, store, ref, "t1", "hello")
		}
	}
	require.Empty(t, fixture.ListArtifacts(t, store, ref))
}

func artifactNamesMayHoldAnyText(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	names := []string{"a", "a\x001", "a:1", "dir.ä {b}.txt", "..", "lastver:a", "v:a", strings.Repeat("n", memory.MaxArtifactNameBytes)}
	for i, name := range names {
		require.Equal(t, 1, fixture.PutArtifact(t, store, h, name, fmt.Sprint(i)).Version)
	}
	for i, name := range names {
		a, err := store.GetArtifact(t.Context(), h.Ref, name, 0)
		require.NoError(t, err)
		require.Equal(t, name, a.Name)
		require.Equal(t, fmt.Sprint(i), fixture.ReadContent(t, store, h.Ref, a.Content, 0))
	}
	require.Len(t, fixture.ListArtifacts(t, store, h.Ref), len(names))
}

// artifactRejectsInvalidNames checks that nothing is stored under an invalid name, and that reading one fails with
// not_found.
func artifactRejectsInvalidNames(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	c := fixture.UploadContent(t, store, h, "text")
	for _, name := range []string{"", strings.Repeat("n", memory.MaxArtifactNameBytes+1), "dir/a.txt", "/a", "a/", "..\\a", "user:", "user:a/b", "\xff"} {
		for _, h := range []memory.Lease{h, {Ref: fixture.NewRef(), TurnID: "t1", Epoch: 1}} {
			_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: name})
			fixture.RequireMode(t, err, failure.UserInvalidInput)
		}
	}
	require.Empty(t, fixture.ListArtifacts(t, store, h.Ref))
	_, err := store.GetArtifact(t.Context(), h.Ref, "dir/a.txt", 0)
	fixture.RequireMode(t, err, failure.NotFound)
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "dir/a.txt", 0))
}

func artifactSessionsAreIsolated(t *testing.T, store memory.Store) {
	one, two := fixture.OpenTurn(t, store), fixture.OpenTurn(t, store)
	a := fixture.PutArtifact(t, store, one, "a", "of one")
	_, err := store.ReadArtifact(t.Context(), two.Ref, a.Content, 0)
	fixture.RequireMode(t, err, failure.NotFound)
	_, err = store.GetArtifact(t.Context(), two.Ref, "a", 0)
	fixture.RequireMode(t, err, failure.NotFound)
	stored, err := store.StageArtifact(t.Context(), two, a.Content)
	require.NoError(t, err)
	require.Zero(t, stored)
}

func artifactOutlivesTheTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	a := fixture.PutArtifact(t, store, fixture.LeaseOf(ref, turn), "a", "made")
	_, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	next := fixture.BeginTurn(t, store, ref, "t2", "again")
	require.Equal(t, []memory.Artifact{a}, fixture.ListArtifacts(t, store, ref))
	second := fixture.PutArtifact(t, store, fixture.LeaseOf(ref, next), "a", "made anew")
	require.Equal(t, 2, second.Version)
	require.Equal(t, "t2", second.Turn)
	require.Equal(t, "made", fixture.ReadContent(t, store, ref, a.Content, 0))
}
