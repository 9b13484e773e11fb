package memorytest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func artifactTests() tests {
	return tests{
		"Artifact_IsReadBack":                artifactIsReadBack,
		"Artifact_Versions":                  artifactVersions,
		"Artifact_SameContentIsNoNewVersion": artifactSameContentIsNoNewVersion,
		"Artifact_GoesOnWhereItStopped":      artifactGoesOnWhereItStopped,
		"Artifact_SuccessorGoesOn":           artifactSuccessorGoesOn,
		"Artifact_EqualContentIsStoredOnce":  artifactEqualContentIsStoredOnce,
		"Artifact_RefusesAnotherDigest":      artifactRefusesAnotherDigest,
		"Artifact_RefusesPiecesOfOtherSizes": artifactRefusesPiecesOfOtherSizes,
		"Artifact_RefusesWhatIsNotComplete":  artifactRefusesWhatIsNotComplete,
		"Artifact_MayBeEmpty":                artifactMayBeEmpty,
	}
}

func contentOf(text string) memory.Content {
	sum := sha256.Sum256([]byte(text))
	return memory.Content{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text))}
}

// send stores what of a content is not stored, as a caller does.
func send(t *testing.T, store memory.Store, h memory.Hold, text string) memory.Content {
	t.Helper()
	c := contentOf(text)
	at, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err)
	for ; at < c.Size; at += memory.ArtifactChunk {
		require.NoError(t, store.AppendArtifact(t.Context(), h, c, at, []byte(text[at:min(at+memory.ArtifactChunk, c.Size)])))
	}
	return c
}

// put stores a version of an artifact.
func put(t *testing.T, store memory.Store, h memory.Hold, name, text string) memory.Artifact {
	t.Helper()
	a, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: send(t, store, h, text), Name: name, MediaType: "text/plain"})
	require.NoError(t, err)
	return a
}

func artifacts(t *testing.T, store memory.Store, ref session.Ref) []memory.Artifact {
	t.Helper()
	all, err := store.ListArtifacts(t.Context(), ref)
	require.NoError(t, err)
	return all
}

// read reads a content from the offset to its end.
func read(t *testing.T, store memory.Store, ref session.Ref, c memory.Content, offset int64) string {
	t.Helper()
	var all []byte
	for {
		piece, err := store.ReadArtifact(t.Context(), ref, c, offset+int64(len(all)))
		require.NoError(t, err)
		require.LessOrEqual(t, len(piece), memory.ArtifactChunk)
		if len(piece) == 0 {
			return string(all)
		}
		all = append(all, piece...)
	}
}

// bulk is bytes in which no two pieces are alike, the same for the same size.
func bulk(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return string(b)
}

func holder(t *testing.T, store memory.Store) memory.Hold {
	t.Helper()
	ref := fresh()
	return holding(ref, begin(t, store, ref, "t1", "hello"))
}

// Req: LP-22, LP-27
func artifactIsReadBack(t *testing.T, store memory.Store) {
	h := holder(t, store)
	for _, size := range []int{1, memory.ArtifactChunk - 1, memory.ArtifactChunk, memory.ArtifactChunk + 1, 3 * memory.ArtifactChunk} {
		text, name := bulk(size), fmt.Sprintf("report-%d.txt", size)
		a := put(t, store, h, name, text)
		require.Equal(t, memory.Artifact{
			Content: contentOf(text), Name: name, MediaType: "text/plain", Version: 1, Turn: "t1", Created: a.Created,
		}, a)
		require.WithinDuration(t, time.Now(), a.Created, time.Minute)
		got, err := store.GetArtifact(t.Context(), h.Ref, name, 0)
		require.NoError(t, err)
		require.Equal(t, a, got)
		require.Equal(t, text, read(t, store, h.Ref, a.Content, 0))
		for _, offset := range []int{1, size / 2, size - 1, size, memory.ArtifactChunk, size + 10} {
			require.Equal(t, text[min(offset, size):], read(t, store, h.Ref, a.Content, int64(offset)), "from %d of %d", offset, size)
		}
	}
	require.Len(t, artifacts(t, store, h.Ref), 5)
	require.EqualValues(t, 6*memory.ArtifactChunk+1, get(t, store, h.Ref).ArtifactBytes)
}

func artifactVersions(t *testing.T, store memory.Store) {
	h := holder(t, store)
	var want []memory.Artifact
	for i := range 11 {
		want = append(want, put(t, store, h, "b", fmt.Sprint(i)))
		require.Equal(t, i+1, want[i].Version)
	}
	want = append(want, put(t, store, h, "c", "1"))
	want = append([]memory.Artifact{put(t, store, h, "a", "1")}, want...)
	require.Equal(t, want, artifacts(t, store, h.Ref), "by name and version")
	for _, version := range []int{1, 2, 10, 11} {
		a, err := store.GetArtifact(t.Context(), h.Ref, "b", version)
		require.NoError(t, err)
		require.Equal(t, want[version], a)
	}
	latest, err := store.GetArtifact(t.Context(), h.Ref, "b", 0)
	require.NoError(t, err)
	require.Equal(t, 11, latest.Version)
	_, err = store.GetArtifact(t.Context(), h.Ref, "b", 12)
	requireMode(t, err, failure.NotFound)
}

// artifactSameContentIsNoNewVersion is also the call whose answer was lost.
func artifactSameContentIsNoNewVersion(t *testing.T, store memory.Store) {
	h := holder(t, store)
	first := put(t, store, h, "a", "one")
	require.Equal(t, first, put(t, store, h, "a", "one"))
	put(t, store, h, "a", "two")
	require.Equal(t, 3, put(t, store, h, "a", "one").Version, "it is not the latest")
	require.EqualValues(t, 9, get(t, store, h.Ref).ArtifactBytes)
}

func artifactGoesOnWhereItStopped(t *testing.T, store memory.Store) {
	h := holder(t, store)
	text := bulk(2*memory.ArtifactChunk + 100)
	c := contentOf(text)
	piece := func(i int) []byte {
		return []byte(text[i*memory.ArtifactChunk : min((i+1)*memory.ArtifactChunk, len(text))])
	}
	at := func(i int) int64 { return int64(i * memory.ArtifactChunk) }
	staged := func() int64 {
		stored, err := store.StageArtifact(t.Context(), h, c)
		require.NoError(t, err)
		return stored
	}
	requireMode(t, store.AppendArtifact(t.Context(), h, c, at(1), piece(1)), failure.BaseMismatch, "offset", "0")
	require.Zero(t, staged())
	require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(0), piece(0)))
	require.Equal(t, at(1), staged())
	requireMode(t, store.AppendArtifact(t.Context(), h, c, at(2), piece(2)), failure.BaseMismatch, "offset", fmt.Sprint(at(1)))
	require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(1), piece(1)))
	for i := range 2 {
		require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(i), piece(i)), "it is there")
	}
	require.Equal(t, at(2), staged())
	for range 2 {
		require.NoError(t, store.AppendArtifact(t.Context(), h, c, at(2), piece(2)))
	}
	require.Equal(t, c.Size, staged())
	a := put(t, store, h, "a", text)
	require.Equal(t, text, read(t, store, h.Ref, a.Content, 0))
}

func artifactSuccessorGoesOn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	text := bulk(memory.ArtifactChunk + 1)
	c := contentOf(text)
	require.NoError(t, store.AppendArtifact(t.Context(), holding(ref, turn), c, 0, []byte(text[:memory.ArtifactChunk])))
	next := takeOver(t, store, ref, turn)
	requireFenced(t, store, ref, turn)
	stored, err := store.StageArtifact(t.Context(), holding(ref, next), c)
	require.NoError(t, err)
	require.EqualValues(t, memory.ArtifactChunk, stored)
	require.Equal(t, text, read(t, store, ref, put(t, store, holding(ref, next), "a", text).Content, 0))
}

func artifactEqualContentIsStoredOnce(t *testing.T, store memory.Store) {
	h := holder(t, store)
	put(t, store, h, "a", "the same")
	stored, err := store.StageArtifact(t.Context(), h, contentOf("the same"))
	require.NoError(t, err)
	require.EqualValues(t, len("the same"), stored, "it need not be sent again")
	b, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: contentOf("the same"), Name: "b", MediaType: "text/html"})
	require.NoError(t, err)
	require.Equal(t, "text/html", b.MediaType)
	require.EqualValues(t, 2*len("the same"), get(t, store, h.Ref).ArtifactBytes, "each version counts")
}

// Req: LP-27
func artifactRefusesAnotherDigest(t *testing.T, store memory.Store) {
	h := holder(t, store)
	text := bulk(memory.ArtifactChunk + 3)
	c := contentOf(text)
	require.NoError(t, store.AppendArtifact(t.Context(), h, c, 0, []byte(text[:memory.ArtifactChunk])))
	requireMode(t, store.AppendArtifact(t.Context(), h, c, memory.ArtifactChunk, []byte("???")), failure.UserInvalidInput, "sha256", c.SHA256)
	stored, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err)
	require.Zero(t, stored, "it is forgotten")
	_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "a"})
	requireMode(t, err, failure.BaseMismatch, "offset", "0")
	require.Empty(t, artifacts(t, store, h.Ref))
	require.Equal(t, text, read(t, store, h.Ref, put(t, store, h, "a", text).Content, 0), "it may be sent again")
}

func artifactRefusesPiecesOfOtherSizes(t *testing.T, store memory.Store) {
	h := holder(t, store)
	text := bulk(2 * memory.ArtifactChunk)
	c := contentOf(text)
	for offset, size := range map[int]int{0: memory.ArtifactChunk - 1, 1: memory.ArtifactChunk + 1, memory.ArtifactChunk: 0, 2 * memory.ArtifactChunk: 1} {
		piece := []byte(bulk(size))
		requireMode(t, store.AppendArtifact(t.Context(), h, c, int64(offset), piece), failure.UserInvalidInput, "offset", fmt.Sprint(offset))
	}
	stored, err := store.StageArtifact(t.Context(), h, c)
	require.NoError(t, err)
	require.Zero(t, stored)
}

func artifactRefusesWhatIsNotComplete(t *testing.T, store memory.Store) {
	h := holder(t, store)
	text := bulk(memory.ArtifactChunk + 1)
	a := memory.Artifact{Content: contentOf(text), Name: "a"}
	_, err := store.PutArtifact(t.Context(), h, a)
	requireMode(t, err, failure.BaseMismatch, "offset", "0")
	require.NoError(t, store.AppendArtifact(t.Context(), h, a.Content, 0, []byte(text[:memory.ArtifactChunk])))
	_, err = store.PutArtifact(t.Context(), h, a)
	requireMode(t, err, failure.BaseMismatch, "offset", fmt.Sprint(memory.ArtifactChunk))
	_, err = store.ReadArtifact(t.Context(), h.Ref, a.Content, 0)
	requireMode(t, err, failure.NotFound)
	send(t, store, h, text)
	_, err = store.ReadArtifact(t.Context(), h.Ref, a.Content, 0)
	requireMode(t, err, failure.NotFound)
}

func artifactMayBeEmpty(t *testing.T, store memory.Store) {
	h := holder(t, store)
	a := put(t, store, h, "empty", "")
	require.Zero(t, a.Size)
	require.Empty(t, read(t, store, h.Ref, a.Content, 0))
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "empty", 0))
	require.Empty(t, artifacts(t, store, h.Ref))
	wrong := memory.Content{SHA256: contentOf("x").SHA256}
	_, err := store.StageArtifact(t.Context(), h, wrong)
	requireMode(t, err, failure.UserInvalidInput)
	_, err = store.PutArtifact(t.Context(), h, memory.Artifact{Content: wrong, Name: "wrong"})
	requireMode(t, err, failure.UserInvalidInput)
}
