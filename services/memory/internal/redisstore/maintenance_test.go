package redisstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	redis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/test/redistest"
)

func newIndexEntry(member string, score float64) redis.Z {
	return redis.Z{Member: member, Score: score}
}

func newSectionReader(content []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content)))
}

// createFullSession creates a session that has data of every kind and an open turn.
func createFullSession(t *testing.T, s *Store, id string) (memory.Begin, memory.Lease) {
	t.Helper()
	b := newBegin(id, "t1")
	b.User = "alice"
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	c := newCommit(b, begun.Turn)
	c.State = map[string]json.RawMessage{"mood": json.RawMessage(`"calm"`), "app:theme": json.RawMessage(`"dark"`)}
	_, err = s.CommitStep(t.Context(), c)
	require.NoError(t, err)
	b.TurnID = "t2"
	begun, err = s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	h := memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
	require.NoError(t, s.Record(t.Context(), h, 1, []execution.Entry{{Number: 1, Phase: execution.Done, Text: "found"}}))
	_, err = transfer.Upload(t.Context(), s, h, memory.Artifact{Name: "report"}, newSectionReader(make([]byte, memory.ArtifactChunk+1)))
	require.NoError(t, err)
	_, err = s.UpdateState(t.Context(), memory.StateUpdate{Ref: b.Ref, RequestID: "r1", Delta: map[string]json.RawMessage{"mood": json.RawMessage("1")}})
	require.NoError(t, err)
	return b, h
}

// deleteKeys returns the KEYS of delete.lua for a session.
func deleteKeys(ref session.Ref) []string {
	return []string{db.Key(ref, "meta"), db.Key(ref, "log"), db.Key(ref, "state"), db.Key(ref, "reqs")}
}

func errorOf[T any](_ T, err error) error { return err }

func sessionKeys(t *testing.T, s *Store, ref session.Ref) []string {
	t.Helper()
	found, err := s.db.Keys(t.Context(), db.Key(ref, "*")).Result()
	require.NoError(t, err)
	return found
}

// A deletion leaves only the tombstone, which fences late writers.
func TestStore_DeleteLeavesOnlyATombstone(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	for name, remove := range map[string]func(ref session.Ref) error{
		"at once": func(ref session.Ref) error { return errorOf(s.DeleteSession(t.Context(), ref)) },
		"in two attempts": func(ref session.Ref) error { // the first one was interrupted after the mark
			if _, err := s.db.RunScript(t.Context(), "test", ref, registeredScript("delete"), deleteKeys(ref), 0); err != nil {
				return err
			}
			return errorOf(s.DeleteSession(t.Context(), ref))
		},
		"twice": func(ref session.Ref) error {
			if err := errorOf(s.DeleteSession(t.Context(), ref)); err != nil {
				return err
			}
			return errorOf(s.DeleteSession(t.Context(), ref))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, h := createFullSession(t, s, fmt.Sprintf("s%d", len(name)))
			insertIntoOutbox(t, s, b, h.Epoch, 1, map[string]json.RawMessage{"app:last": json.RawMessage(`"` + name + `"`)})
			require.Greater(t, len(sessionKeys(t, s, b.Ref)), 9)
			require.NoError(t, remove(b.Ref))

			require.Equal(t, []string{db.Key(b.Ref, "meta")}, sessionKeys(t, s, b.Ref))
			mark, err := s.db.HGetAll(t.Context(), db.Key(b.Ref, "meta")).Result()
			require.NoError(t, err)
			require.NotContains(t, mark, "user")
			require.Equal(t, fmt.Sprint(h.Epoch), mark["epoch"])
			left, err := s.db.PTTL(t.Context(), db.Key(b.Ref, "meta")).Result()
			require.NoError(t, err)
			require.InDelta(t, memory.Retention, left, float64(time.Minute))
			require.Equal(t, failure.SessionDeleted, failure.ModeOf(s.RenewTurn(t.Context(), h, memory.MinLeaseTTL)))
			for _, user := range []string{"", "alice"} {
				require.Zero(t, s.db.ZScore(t.Context(), db.IndexKey("default", user), b.Ref.Session).Val())
			}
			// Changes of shared state that a session has committed remain after its deletion.
			other := newBegin("other", "t1")
			_, err = s.BeginTurn(t.Context(), other)
			require.NoError(t, err)
			require.Equal(t, `"`+name+`"`, string(readState(t, s, other).Values["app:last"]))
		})
	}
}

func TestStore_ExpireKeepsSessionsInUse(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	begin := func(id string) memory.Commit {
		b := newBegin(id, "t1")
		begun, err := s.BeginTurn(t.Context(), b)
		require.NoError(t, err)
		return newCommit(b, begun.Turn)
	}
	open, fresh, late, idle := begin("open"), begin("fresh"), begin("late"), begin("idle")
	for _, c := range []memory.Commit{fresh, late, idle} {
		_, err := s.CommitStep(t.Context(), c)
		require.NoError(t, err)
	}
	for _, c := range []memory.Commit{open, late, idle} { // the last activity was long ago
		require.NoError(t, s.db.ZAdd(t.Context(), db.IndexKey("default", ""), newIndexEntry(c.Ref.Session, 1)).Err())
	}
	for _, c := range []memory.Commit{open, idle} { // and nothing has happened since
		require.NoError(t, s.db.HSet(t.Context(), db.Key(c.Ref, "meta"), "active", "1").Err())
	}
	count, err := s.Expire(t.Context(), "default", time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, count)
	for _, c := range []memory.Commit{open, fresh, late} {
		_, err := s.GetSession(t.Context(), c.Ref)
		require.NoError(t, err)
	}
	_, err = s.GetSession(t.Context(), idle.Ref)
	require.Equal(t, failure.SessionDeleted, failure.ModeOf(err))

	// Expire keeps a session that was used after Expire had read its index entry.
	r, err := s.db.RunScript(t.Context(), "test", late.Ref, registeredScript("delete"), deleteKeys(late.Ref), time.Hour.Milliseconds())
	require.NoError(t, err)
	require.Equal(t, "active", r.Status())
}

// Sessions that were created in the same millisecond are each listed once, whatever the page size is.
func TestStore_ListsSessionsCreatedInTheSameMillisecond(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.SetTime(time.UnixMilli(1_700_000_000_000))
	s := openStore(t, "redis://"+server.Addr())
	const made = 30
	for i := range made {
		_, err := s.UpdateSession(t.Context(), memory.SessionUpdate{Ref: session.Ref{Tenant: "default", Session: fmt.Sprintf("s%02d", i)}, Create: true})
		require.NoError(t, err)
	}
	for _, limit := range []int{1, 7, 29, 30, 31} {
		listed := map[string]bool{}
		for after := ""; ; {
			page, next, err := s.ListSessions(t.Context(), memory.SessionFilter{Tenant: "default", Limit: limit, After: after})
			require.NoError(t, err)
			for _, found := range page {
				require.False(t, listed[found.ID], "%s comes twice with pages of %d", found.ID, limit)
				listed[found.ID] = true
			}
			if after = next; after == "" {
				break
			}
		}
		require.Len(t, listed, made)
	}
}

func TestStore_ListDropsEntriesWithoutASession(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	key := db.IndexKey("default", "")
	b := newBegin("real", "t1")
	_, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.NoError(t, s.db.ZAdd(t.Context(), key, newIndexEntry("ghost", 5), newIndexEntry("phantom", 6)).Err())
	page, next, err := s.ListSessions(t.Context(), memory.SessionFilter{Tenant: "default", Limit: 2})
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.Empty(t, next)
	require.Equal(t, []string{"real"}, s.db.ZRange(t.Context(), key, 0, -1).Val())

	// The list keeps a session that was created again after its index entry was read.
	require.NoError(t, s.db.ZAdd(t.Context(), key, newIndexEntry("ghost", 7)).Err())
	require.NoError(t, index.New(s.db).Remove(t.Context(), "test", key, index.Entry{Created: 5, Session: "ghost"}))
	require.EqualValues(t, 2, s.db.ZCard(t.Context(), key).Val())
}

// Staged content expires after a day with all its pieces. Content that an artifact uses is kept.
func TestStore_StagedContentExpires(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	s := openStore(t, "redis://"+server.Addr())
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	h := memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
	content := bytes.Repeat([]byte("abc"), memory.ArtifactChunk)
	put, err := transfer.Upload(t.Context(), s, h, memory.Artifact{Name: "kept"}, newSectionReader(content))
	require.NoError(t, err)
	staged := memory.Content{SHA256: strings.Repeat("0", 64), Size: 2 * memory.ArtifactChunk}
	require.NoError(t, s.AppendArtifact(t.Context(), h, staged, 0, content[:memory.ArtifactChunk]))
	stored, err := s.StageArtifact(t.Context(), h, staged)
	require.NoError(t, err)
	require.EqualValues(t, memory.ArtifactChunk, stored)
	require.Equal(t, server.TTL(db.Key(b.Ref, contents.ContentKey(staged))).Round(time.Minute), server.TTL(db.Key(b.Ref, contents.PieceKey(staged,
		0))).Round(time.Minute))

	server.FastForward(24*time.Hour + time.Second)
	stored, err = s.StageArtifact(t.Context(), h, staged)
	require.NoError(t, err)
	require.Zero(t, stored)
	var read bytes.Buffer
	_, err = transfer.Download(t.Context(), s, b.Ref, "kept", put.Version, &read)
	require.NoError(t, err)
	require.Equal(t, content, read.Bytes())

	require.NoError(t, s.DeleteArtifact(t.Context(), h, "kept", 0))
	for _, k := range contents.ContentKeys(db.SessionLocation(b.Ref), put.Content) {
		require.False(t, server.Exists(k), k)
	}
}
