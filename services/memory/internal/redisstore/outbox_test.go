package redisstore

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
	"github.com/troupe-dev/troupe/test/redistest"
)

// insertIntoOutbox inserts a change into the outbox, as if its caller had committed and then died before it
// drained the outbox.
func insertIntoOutbox(t *testing.T, s *Store, b memory.Begin, epoch int64, step int, delta map[string]json.RawMessage) memory.StateUpdate {
	t.Helper()
	u := memory.StateUpdate{Ref: b.Ref, RequestID: fmt.Sprintf("%s/%d", b.TurnID, step), Epoch: epoch, Delta: delta}
	stored, err := db.Encoding.Marshal(memorywire.StateUpdateToProto(u))
	require.NoError(t, err)
	require.NoError(t, s.db.HSet(t.Context(), db.Key(b.Ref, "out"), u.RequestID, stored).Err())
	return u
}

func readState(t *testing.T, s *Store, b memory.Begin) memory.Snapshot {
	t.Helper()
	snapshot, err := s.GetState(t.Context(), b.Ref)
	require.NoError(t, err)
	return snapshot
}

// The shared changes of a commit are applied once, at whatever point a process dies.
// Req: AD-18, AD-19
func TestStore_OutboxIsAppliedOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := newBegin("s1", "t1")
	b.User = "alice"
	_, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)

	// A process dies after it has applied the change and before it removes the change from the outbox.
	u := insertIntoOutbox(t, s, b, 1, 1, map[string]json.RawMessage{"app:theme": json.RawMessage(`"dark"`), "user:name": json.RawMessage(`"Alice"`)})
	require.NoError(t, outbox.New(s.db).Drain(t.Context(), b.Ref))
	insertIntoOutbox(t, s, b, 1, 1, u.Delta)
	got := readState(t, s, b)
	require.JSONEq(t, `"dark"`, string(got.Values["app:theme"]))
	require.Equal(t, map[memory.Scope]int64{memory.ScopeApp: 1, memory.ScopeUser: 1, memory.ScopeSession: 0}, got.Revisions)
	require.Zero(t, s.db.Exists(t.Context(), db.Key(b.Ref, "out")).Val())

	// Several callers drain the outbox at the same time.
	for step := range 20 {
		insertIntoOutbox(t, s, b, 1, step+2, map[string]json.RawMessage{"app:step": json.RawMessage(fmt.Sprint(step))})
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { require.NoError(t, outbox.New(s.db).Drain(t.Context(), b.Ref)) })
	}
	all.Wait()
	got = readState(t, s, b)
	require.EqualValues(t, 21, got.Revisions[memory.ScopeApp])
}

func TestStore_OutboxKeepsTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := newBegin("s1", "t1")
	_, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	for _, at := range []struct{ epoch, step int }{{2, 1}, {1, 10}, {1, 9}} {
		insertIntoOutbox(t, s, b, int64(at.epoch), at.step, map[string]json.RawMessage{"app:last": json.RawMessage(fmt.Sprintf("[%d,%d]", at.epoch, at.step))})
		b.TurnID += "x" // turn ids have no order
	}
	require.JSONEq(t, "[2,1]", string(readState(t, s, b).Values["app:last"]))
}

// The list of applied changes in a scope does not grow without limit.
func TestStore_DeletesAppliedChanges(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := newBegin("s1", "t1")
	_, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	settled := db.AppKey(b.Ref.Tenant, "decided")
	require.NoError(t, s.db.ZAdd(t.Context(), settled, newIndexEntry("s0/t0/1", 1)).Err()) // long ago
	insertIntoOutbox(t, s, b, 1, 1, map[string]json.RawMessage{"app:a": json.RawMessage("1")})
	require.NoError(t, outbox.New(s.db).Drain(t.Context(), b.Ref))
	require.Equal(t, []string{"s1/t1/1"}, s.db.ZRange(t.Context(), settled, 0, -1).Val())
}
