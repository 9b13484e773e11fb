package redisstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/test/redistest"
)

// beginAliceTurn begins a turn in a session of the user alice, in a tenant that no other test uses.
func beginAliceTurn(t *testing.T, s *Store, tenant, id string) (memory.Begin, memory.Lease) {
	t.Helper()
	b := newBegin(id, "t1")
	b.Ref.Tenant, b.User = tenant, "alice"
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	return b, memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
}

// stageContent stages a text as content of the session.
func stageContent(t *testing.T, s *Store, h memory.Lease, text []byte) memory.Content {
	t.Helper()
	sum := sha256.Sum256(text)
	c := memory.Content{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text))}
	for at := 0; at < len(text); at += memory.ArtifactChunk {
		require.NoError(t, s.AppendArtifact(t.Context(), h, c, int64(at), text[at:min(at+memory.ArtifactChunk, len(text))]))
	}
	return c
}

// openStoreCutAfter returns a store whose connection fails after the given number of round trips. *cut is set to
// true when that happens.
func openStoreCutAfter(t *testing.T, addr string, trips int) (s *Store, cut *bool) {
	t.Helper()
	s, cut = openStore(t, "redis://"+addr), new(bool)
	for _, script := range []*redis.Script{
		registeredScript("user"), registeredScript("stage_for_user"), registeredScript("copy_piece"), registeredScript("enqueue"), registeredScript("put_artifact"),
		registeredScript("drop_artifact"), registeredScript("apply_commit"), registeredScript("unstage"),
	} {
		require.NoError(t, script.Load(t.Context(), s.db).Err())
	}
	s.db.AddHook(beforeRoundTripHook(func(...redis.Cmder) error {
		if trips--; trips < 0 {
			*cut = true
			return errCut
		}
		return nil
	}))
	return s, cut
}

// A call may be interrupted at any round trip. Repeating it completes the change exactly once and leaves nothing
// else behind.
func TestStore_CompletesAnInterruptedUserArtifact(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	s := openStore(t, "redis://"+addr)
	text := bytes.Repeat([]byte("0123456789abcdef"), memory.ArtifactChunk/16+1) // two pieces
	for trips, again := 0, true; again; trips++ {
		tenant := fmt.Sprint("cut-", trips)
		_, h := beginAliceTurn(t, s, tenant, "s1")
		_, reader := beginAliceTurn(t, s, tenant, "s2")
		a := memory.Artifact{Content: stageContent(t, s, h, text), Name: "user:a"}
		at := db.UserLocation(tenant, "alice")
		failing, cut := openStoreCutAfter(t, addr, trips)
		_, err := failing.PutArtifact(t.Context(), h, a)
		require.Equal(t, *cut, err != nil, "after %d trips: %v", trips, err)
		again = *cut

		put, err := s.PutArtifact(t.Context(), h, a)
		require.NoError(t, err)
		all, err := s.ListArtifacts(t.Context(), reader.Ref)
		require.NoError(t, err)
		require.Equal(t, []memory.Artifact{put}, all, "after %d trips", trips)
		require.Equal(t, 1, put.Version)
		require.Zero(t, s.db.Exists(t.Context(), append(contents.ContentKeys(db.SessionLocation(h.Ref), a.Content), db.Key(h.Ref, "staged"),
			db.Key(h.Ref, "out"), at("staged"))...).Val())
		for _, k := range contents.ContentKeys(at, a.Content) {
			require.EqualValues(t, -1, s.db.PTTL(t.Context(), k).Val(), "it does not expire: %s", k)
		}

		failing, cut = openStoreCutAfter(t, addr, trips)
		err = failing.DeleteArtifact(t.Context(), h, a.Name, 0)
		require.Equal(t, *cut, err != nil, "after %d trips: %v", trips, err)
		require.NoError(t, s.DeleteArtifact(t.Context(), h, a.Name, 0))
		require.Zero(t, s.db.Exists(t.Context(), append(contents.ContentKeys(at, a.Content), db.Key(h.Ref, "out"))...).Val())
		require.Equal(t, map[string]string{"n:user:a": "1", "arts": "0", "art_bytes": "0"}, s.db.HGetAll(t.Context(), at("arts")).Val())
	}
}

// A writer enqueues a version and is fenced before the version is created. Its successor sees the version from the
// start and writes after it.
func TestStore_FencedWriterAddsNoVersionLater(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	next := openStore(t, "redis://"+addr)
	for name, at := range map[string]*redis.Script{"before it is left": registeredScript("enqueue"), "before it is made": registeredScript("put_artifact")} {
		t.Run(name, func(t *testing.T) {
			old, _ := openStoreCutAfter(t, addr, 1000)
			b, h := beginAliceTurn(t, next, name, "s1")
			a := memory.Artifact{Content: stageContent(t, next, h, []byte("of the one before")), Name: "user:a"}
			taken, seen := h, []memory.Artifact(nil)
			once := false
			old.db.AddHook(beforeRoundTripHook(func(cmds ...redis.Cmder) error {
				if once || !runsScript(at, cmds) {
					return nil
				}
				once = true
				b.LostEpoch = h.Epoch
				begun, err := next.BeginTurn(t.Context(), b)
				require.NoError(t, err)
				taken.Epoch = begun.Turn.Epoch
				seen, err = next.ListArtifacts(t.Context(), b.Ref)
				require.NoError(t, err)
				_, err = next.PutArtifact(t.Context(), taken, memory.Artifact{
					Content: stageContent(t, next, taken, []byte("of the successor")),
					Name:    "user:a",
				})
				require.NoError(t, err)
				return nil
			}))
			put, err := old.PutArtifact(t.Context(), h, a)
			require.True(t, once)
			after, again := next.ListArtifacts(t.Context(), b.Ref)
			require.NoError(t, again)
			if at == registeredScript("enqueue") {
				require.Equal(t, failure.Fenced, failure.ModeOf(err), "error: %v", err)
				require.Empty(t, seen)
				require.Len(t, after, 1)
				return
			}
			require.NoError(t, err, "it was made before the turn changed hands")
			require.Equal(t, []memory.Artifact{put}, seen)
			require.Equal(t, 1, put.Version)
			require.Len(t, after, 2)
		})
	}
}

// Two sessions have the same content. One removes it while the other uploads a version that uses it. The new
// version is still complete.
func TestStore_UserContentRemovedDuringUpload(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	other := openStore(t, "redis://"+addr)
	s, _ := openStoreCutAfter(t, addr, 1000)
	_, one := beginAliceTurn(t, other, "default", "s1")
	_, two := beginAliceTurn(t, other, "default", "s2")
	text := []byte("the same")
	a := memory.Artifact{Content: stageContent(t, other, one, text), Name: "user:a"}
	_, err := other.PutArtifact(t.Context(), one, a)
	require.NoError(t, err)
	stageContent(t, other, two, text)
	once := false
	s.db.AddHook(beforeRoundTripHook(func(cmds ...redis.Cmder) error {
		if once || !runsScript(registeredScript("enqueue"), cmds) {
			return nil
		}
		once = true
		return other.DeleteArtifact(t.Context(), one, "user:a", 0)
	}))
	b, err := s.PutArtifact(t.Context(), two, memory.Artifact{Content: a.Content, Name: "user:b"})
	require.NoError(t, err)
	require.True(t, once)
	piece, err := other.ReadArtifact(t.Context(), one.Ref, b.Content, 0)
	require.NoError(t, err)
	require.Equal(t, text, piece)
}

// If the user's quota is exhausted, the call is rejected before content is copied. Content that was copied for a
// rejected version is removed.
func TestStore_ChecksTheQuotaBeforeCopying(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	_, h := beginAliceTurn(t, s, "default", "s1")
	at := db.UserLocation("default", "alice")
	require.NoError(t, s.db.HSet(t.Context(), at("arts"), "arts", memory.MaxArtifacts, "art_bytes", 7).Err())
	a := memory.Artifact{Content: stageContent(t, s, h, []byte("text")), Name: "user:a"}
	_, err := s.PutArtifact(t.Context(), h, a)
	require.Equal(t, failure.ResourceQuota, failure.ModeOf(err))
	require.ErrorContains(t, err, "the user of session s1 has 1000 versions")
	require.Zero(t, s.db.Exists(t.Context(), contents.ContentKeys(at, a.Content)...).Val())
}
