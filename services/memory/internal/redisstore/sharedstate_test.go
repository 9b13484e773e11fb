package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/test/redistest"
)

// afterFirstCommandHook is a Redis hook that calls callback between the first and the second command of a call.
type afterFirstCommandHook struct {
	commands int
	callback func()
}

func (a *afterFirstCommandHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *afterFirstCommandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *afterFirstCommandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.commands++; a.commands == 2 {
			a.callback()
		}
		return next(ctx, cmd)
	}
}

// newTurnUpdate returns a request that changes one key on behalf of a turn.
func newTurnUpdate(b memory.Begin, epoch int64, request, name, value string) memory.StateUpdate {
	return memory.StateUpdate{
		Ref: b.Ref, RequestID: request, TurnID: b.TurnID, Epoch: epoch, Delta: map[string]json.RawMessage{name: json.RawMessage(value)},
	}
}

// openStoreWithLoadedScripts returns a store for which the scripts of a state change are already loaded, so that
// each script runs as one command.
func openStoreWithLoadedScripts(t *testing.T, url string) *Store {
	t.Helper()
	s := openStore(t, url)
	for _, script := range []*redis.Script{
		registeredScript("session_user"), registeredScript("enqueue"), registeredScript("apply_call"),
		registeredScript("apply_commit"),
	} {
		require.NoError(t, script.Load(t.Context(), s.db).Err())
	}
	return s
}

// A writer whose update is stored just before it loses its turn gets no error. It still applies the update to shared
// state, but does not overwrite a later change of its successor.
// Req: LP-27
func TestStore_LateWriterKeepsSharedStateOfItsSuccessor(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t)
	for _, name := range []string{"app:theme", "user:theme"} {
		t.Run(name, func(t *testing.T) {
			old, next := openStoreWithLoadedScripts(t, url), openStore(t, url)
			b := newBegin("s-"+name[:3], "t1")
			b.User = "alice"
			begun, err := old.BeginTurn(t.Context(), b)
			require.NoError(t, err)
			var before memory.Snapshot
			old.db.AddHook(&afterFirstCommandHook{callback: func() {
				lost := b
				lost.LostEpoch = begun.Turn.Epoch
				taken, err := next.BeginTurn(t.Context(), lost)
				require.NoError(t, err)
				before = readState(t, next, b)
				_, err = next.UpdateState(t.Context(), newTurnUpdate(b, taken.Turn.Epoch, "r2", name, `"of the successor"`))
				require.NoError(t, err)
			}})
			_, err = old.UpdateState(t.Context(), newTurnUpdate(b, begun.Turn.Epoch, "r1", name, `"of the one before"`))
			require.NoError(t, err)
			require.Equal(t, `"of the one before"`, string(before.Values[name]), "it was made before the turn changed hands")
			require.Equal(t, `"of the successor"`, string(readState(t, next, b).Values[name]))
			require.Zero(t, next.db.Exists(t.Context(), db.Key(b.Ref, "out")).Val())
		})
	}
}

// A rejected change is not applied later and does not block its session.
func TestStore_RejectedChangeIsNotAppliedLater(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t)
	s, other := openStoreWithLoadedScripts(t, url), openStore(t, url)
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	s.db.AddHook(&afterFirstCommandHook{callback: func() {
		require.Empty(t, readState(t, other, b).Values, "another caller applies the change: the revision is different")
		_, err := other.UpdateState(t.Context(), newTurnUpdate(b, begun.Turn.Epoch, "r2", "app:a", "2"))
		require.NoError(t, err) // now the scope has the expected revision
	}})
	u := newTurnUpdate(b, begun.Turn.Epoch, "r1", "app:a", "1")
	u.IfRevision = new(int64(1))
	_, err = s.UpdateState(t.Context(), u)
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	require.Equal(t, "2", string(readState(t, s, b).Values["app:a"]))
	revision, err := s.UpdateState(t.Context(), u) // the repeated call
	require.NoError(t, err)
	require.EqualValues(t, 2, revision)

	u.RequestID, u.IfRevision = "r3", new(int64(7))
	_, err = s.UpdateState(t.Context(), u)
	require.Equal(t, failure.RevisionMismatch, failure.ModeOf(err), "error: %v", err)
	require.Zero(t, s.db.Exists(t.Context(), db.Key(b.Ref, "out")).Val(), "what was refused does not wait")
}

// The next caller applies the changes that are left in the outbox, each once and in order.
func TestStore_AppliesPendingChangesOfAnEarlierTurn(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	u := newTurnUpdate(b, begun.Turn.Epoch, "r1", "app:a", "1")
	leave := func() {
		stored, err := db.Encoding.Marshal(memorywire.StateUpdateToProto(u))
		require.NoError(t, err)
		r, err := s.db.RunScript(t.Context(), "test", b.Ref, registeredScript("enqueue"), db.TurnKeys(b.Ref, b.TurnID, "out"), u.Epoch, "call:x", stored, false)
		require.NoError(t, err)
		require.Equal(t, "ok", r.Status())
	}
	leave()
	insertIntoOutbox(t, s, b, 1, 1, map[string]json.RawMessage{"app:a": json.RawMessage("2")}) // a later commit
	revision, err := s.UpdateState(t.Context(), u)
	require.NoError(t, err)
	require.EqualValues(t, 1, revision, "it was made already")
	require.Equal(t, "2", string(readState(t, s, b).Values["app:a"]))

	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for {
				_, err := s.UpdateState(t.Context(), newTurnUpdate(b, begun.Turn.Epoch, fmt.Sprint("many", i), "app:n", "1"))
				if failure.ModeOf(err) != failure.SystemNetwork {
					require.NoError(t, err)
					return
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 10, readState(t, s, b).Revisions[memory.ScopeApp])
}
