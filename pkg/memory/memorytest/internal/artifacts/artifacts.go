// Package artifacts tests the artifacts of sessions and users, and the files attached to messages.
package artifacts

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
)

// Tests returns the tests of this package by name.
func Tests() fixture.Tests {
	return fixture.Merge(artifactTests(), versionTests(), userArtifactTests(), attachTests())
}

func artifactTests() fixture.Tests {
	return fixture.Tests{
		"Artifact_ReturnsStoredContent":           artifactReturnsStoredContent,
		"Artifact_PutCreatesAVersion":             artifactPutCreatesAVersion,
		"Artifact_SameContentMakesNoNewVersion":   artifactSameContentMakesNoNewVersion,
		"Artifact_UploadResumes":                  artifactUploadResumes,
		"Artifact_SuccessorResumesTheUpload":      artifactSuccessorResumesTheUpload,
		"Artifact_EqualContentIsStoredOnce":       artifactEqualContentIsStoredOnce,
		"Artifact_RejectsContentWithAWrongDigest": artifactRejectsContentWithAWrongDigest,
		"Artifact_RejectsPiecesOfOtherSizes":      artifactRejectsPiecesOfOtherSizes,
		"Artifact_RejectsIncompleteContent":       artifactRejectsIncompleteContent,
		"Artifact_ContentMayBeEmpty":              artifactContentMayBeEmpty,
	}
}

// Req: LP-22, LP-27
func artifactReturnsStoredContent(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	for _, size := range []int{1, memory.ArtifactChunk - 1, memory.ArtifactChunk, memory.ArtifactChunk + 1, 3 * memory.ArtifactChunk} {
		text, name := fixture.LongText(size), fmt.Sprintf("report-%d.txt", size)
		a := fixture.PutArtifact(t, store, h, name, text)
		require.Equal(t, memory.Artifact{
			Content: fixture.ContentOf(text), Name: name, MediaType: "text/plain", Version: 1, Turn: "t1", Created: a.Created,
		}, a)
		require.WithinDuration(t, time.Now(), a.Created, time.Minute)
		got, err := store.GetArtifact(t.Context(), h.Ref, name, 0)
		require.NoError(t, err)
		require.Equal(t, a, got)
		require.Equal(t, text, fixture.ReadContent(t, store, h.Ref, a.Content, 0))
		for _, offset := range []int{1, size / 2, size - 1, size, memory.ArtifactChunk, size + 10} {
			require.Equal(t, text[min(offset, size):], fixture.ReadContent(t, store, h.Ref, a.Content, int64(offset)), "from %d of %d", offset, size)
		}
	}
	require.Len(t, fixture.ListArtifacts(t, store, h.Ref), 5)
	require.EqualValues(t, 6*memory.ArtifactChunk+1, fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes)
}

func artifactPutCreatesAVersion(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	var want []memory.Artifact
	for i := range 11 {
		want = append(want, fixture.PutArtifact(t, store, h, "b", fmt.Sprint(i)))
		require.Equal(t, i+1, want[i].Version)
	}
	want = append(want, fixture.PutArtifact(t, store, h, "c", "1"))
	want = append([]memory.Artifact{fixture.PutArtifact(t, store, h, "a", "1")}, want...)
	require.Equal(t, want, fixture.ListArtifacts(t, store, h.Ref), "by name and version")
	for _, version := range []int{1, 2, 10, 11} {
		a, err := store.GetArtifact(t.Context(), h.Ref, "b", version)
		require.NoError(t, err)
		require.Equal(t, want[version], a)
	}
	latest, err := store.GetArtifact(t.Context(), h.Ref, "b", 0)
	require.NoError(t, err)
	require.Equal(t, 11, latest.Version)
	_, err = store.GetArtifact(t.Context(), h.Ref, "b", 12)
	fixture.RequireMode(t, err, failure.NotFound)
}

// artifactSameContentMakesNoNewVersion puts the same content twice, like a caller that repeats a call because the
// answer was lost.
func artifactSameContentMakesNoNewVersion(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	first := fixture.PutArtifact(t, store, h, "a", "one")
	require.Equal(t, first, fixture.PutArtifact(t, store, h, "a", "one"))
	fixture.PutArtifact(t, store, h, "a", "two")
	require.Equal(t, 3, fixture.PutArtifact(t, store, h, "a", "one").Version, "it is not the latest")
	require.EqualValues(t, 9, fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes)
}

func artifactUploadResumes(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	text := fixture.LongText(2*memory.ArtifactChunk + 100)
	c := fixture.ContentOf(text)
	piece := func(i int) []byte {
		return []byte(text[i*memory.ArtifactChunk : min((i+1)*memory.ArtifactChunk, len(text))])
	}
	at := func(i int) int64 { return int64(i * memory.ArtifactChunk) }
	staged := func() int64 {
		stored, err := store.StageArtifact(t.Context(), h, c)
		require.NoError(t, err)
		return stored
	}
	fixture.RequireMode(t, store.AppendArtifact(t.Context(), h, c, at(1), piece(1)), failure.BaseMismatch, "offset", "0")
	require.Zero(t, staged())
	require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(0), piece(0)))
	require.Equal(t, at(1), staged())
	fixture.RequireMode(t, store.AppendArtifact(t.Context(), h, c, at(2), piece(2)), failure.BaseMismatch, "offset", fmt.Sprint(at(1)))
	require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(1), piece(1)))
	for i := range 2 {
		require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(i), piece(i)), "it is there")
	}
	require.Equal(t, at(2), staged())
	for range 2 {
		require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(2), piece(2)))
	}
	require.Equal(t, c.Size, staged())
	a := fixture.PutArtifact(t, store, h, "a", text)
	require.Equal(t, text, fixture.ReadContent(t, store, h.Ref, a.Content, 0))
}

func artifactSuccessorResumesTheUpload(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	text := fixture.LongText(memory.ArtifactChunk + 1)
	c := fixture.ContentOf(text)
	require.NoError(t, store.AppendArtifact(t.Context(), fixture.LeaseOf(ref, turn), c, 0, []byte(text[:memory.ArtifactChunk])))
	next := fixture.TakeOver(t, store, ref, turn)
	fixture.RequireFenced(t, store, ref, turn)
	stored, err := store.StageArtifact(t.Context(), fixture.LeaseOf(ref, next), c)
	require.NoError(t, err)
	require.EqualValues(t, memory.ArtifactChunk, stored)
	require.Equal(t, text, fixture.ReadContent(t, store, ref, fixture.PutArtifact(t, store, fixture.LeaseOf(ref, next), "a", text).Content, 0))
}

func artifactEqualContentIsStoredOnce(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	fixture.PutArtifact(t, store, h, "a", "the same")
	stored, err := store.StageArtifact(t.Context(), h, fixture.ContentOf("the same"))
	require.NoError(t, err)
	require.EqualValues(t, len("the same"), stored, "it need not be sent again")
	b, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: fixture.ContentOf("the same"), Name: "b", MediaType: "text/html"})
	require.NoError(t, err)
	require.Equal(t, "text/html", b.MediaType)
	require.EqualValues(t, 2*len("the same"), fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes, "each version counts")
}

// Req: LP-27
func artifactRejectsContentWithAWrongDigest(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	text := fixture.LongText(memory.ArtifactChunk + 3)
	c := fixture.ContentOf(text)
	require.NoError(t, store.AppendArtifact(t.Context(), h, c, 0, []byte(text[:memory.ArtifactChunk])))
	fixture.RequireMode(t, store.AppendArtifact(t.Context(), h, c, memory.ArtifactChunk, []byte("???")), failure.UserInvalidInput, "sha256", c.SHA256)
	stored, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err)
	require.Zero(t, stored, "it is forgotten")
	_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "a"})
	fixture.RequireMode(t, err, failure.BaseMismatch, "offset", "0")
	require.Empty(t, fixture.ListArtifacts(t, store, h.Ref))
	require.Equal(t, text, fixture.ReadContent(t, store, h.Ref, fixture.PutArtifact(t, store, h, "a", text).Content, 0), "it may be sent again")
}

func artifactRejectsPiecesOfOtherSizes(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	text := fixture.LongText(2 * memory.ArtifactChunk)
	c := fixture.ContentOf(text)
	for offset, size := range map[int]int{0: memory.ArtifactChunk - 1, 1: memory.ArtifactChunk + 1, memory.ArtifactChunk: 0, 2 * memory.ArtifactChunk: 1} {
		piece := []byte(fixture.LongText(size))
		fixture.RequireMode(t, store.AppendArtifact(t.Context(), h, c, int64(offset), piece), failure.UserInvalidInput, "offset", fmt.Sprint(offset))
	}
	stored, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err)
	require.Zero(t, stored)
}

func artifactRejectsIncompleteContent(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	text := fixture.LongText(memory.ArtifactChunk + 1)
	a := memory.Artifact{Content: fixture.ContentOf(text), Name: "a"}
	_, err := store.PutArtifact(t.Context(), h, a)
	fixture.RequireMode(t, err, failure.BaseMismatch, "offset", "0")
	require.NoError(t, store.AppendArtifact(t.Context(), h, a.Content, 0, []byte(text[:memory.ArtifactChunk])))
	_, err = store.PutArtifact(t.Context(), h, a)
	fixture.RequireMode(t, err, failure.BaseMismatch, "offset", fmt.Sprint(memory.ArtifactChunk))
	_, err = store.ReadArtifact(t.Context(), h.Ref, a.Content, 0)
	fixture.RequireMode(t, err, failure.NotFound)
	fixture.UploadContent(t, store, h, text)
	_, err = store.ReadArtifact(t.Context(), h.Ref, a.Content, 0)
	fixture.RequireMode(t, err, failure.NotFound)
}

func artifactContentMayBeEmpty(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	a := fixture.PutArtifact(t, store, h, "empty", "")
	require.Zero(t, a.Size)
	require.Empty(t, fixture.ReadContent(t, store, h.Ref, a.Content, 0))
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "empty", 0))
	require.Empty(t, fixture.ListArtifacts(t, store, h.Ref))
	wrong := memory.Content{SHA256: fixture.ContentOf("x").SHA256}
	_, err := store.StageArtifact(t.Context(), h, wrong)
	fixture.RequireMode(t, err, failure.UserInvalidInput)
	_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: wrong, Name: "wrong"})
	fixture.RequireMode(t, err, failure.UserInvalidInput)
}
