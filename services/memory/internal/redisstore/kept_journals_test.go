package redisstore

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/test/redistest"
)

func openStoreKeepingJournals(t *testing.T, url string) *Store {
	t.Helper()
	s, err := New(Config{URL: url, KeepJournals: memorytest.KeepJournals})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStore_KeepsJournalsOnRedis(t *testing.T) {
	t.Parallel()
	s := openStoreKeepingJournals(t, "redis://"+redistest.Start(t))
	memorytest.RunKeepJournals(t, func(*testing.T) memory.Store { return s })
}

func TestStore_KeepsJournalsOnACluster(t *testing.T) {
	t.Parallel()
	s := openStoreKeepingJournals(t, redistest.StartCluster(t))
	memorytest.RunKeepJournals(t, func(*testing.T) memory.Store { return s })
}

// runFinishedTurn runs a turn of two steps. The journal of each step has one entry.
func runFinishedTurn(t *testing.T, s *Store, turnID string) session.Ref {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), newBegin("s1", turnID))
	require.NoError(t, err)
	ref := session.Ref{Tenant: "default", Session: "s1"}
	_, err = s.CommitStep(t.Context(), memory.Commit{
		Ref: ref, TurnID: turnID, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence, Result: execution.Result{Step: 1}, Journal: newJournalEntries(),
	})
	require.NoError(t, err)
	require.NoError(t, s.Record(t.Context(), memory.Lease{Ref: ref, TurnID: turnID, Epoch: begun.Turn.Epoch}, 2, newJournalEntries()))
	_, err = s.FailTurn(t.Context(), memory.Fail{
		Ref: ref, TurnID: turnID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed, Failure: failure.New(failure.NoWorker, "test", "no worker"),
	})
	require.NoError(t, err)
	return ref
}

func newJournalEntries() []execution.Entry {
	return []execution.Entry{{Number: 1, Phase: execution.Done, Reply: conversation.Assistant("echo", "hm")}}
}

func TestStore_JournalsExpire(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	s := openStoreKeepingJournals(t, "redis://"+redis.Addr())
	ref := runFinishedTurn(t, s, "t1")
	require.Equal(t, memorytest.KeepJournals, redis.TTL(db.Key(ref, db.JournalName("t1", 1))))
	require.Equal(t, max(memorytest.KeepJournals, journal.Retention), redis.TTL(db.Key(ref, db.JournalName("t1", 2))), "for a turn that resumes the failed one")
	redis.FastForward(memorytest.KeepJournals + time.Second)
	entries, err := s.Recording(t.Context(), ref, "t1", 1, 0)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// By default a committed step leaves no journal.
func TestStore_KeepsNoJournalsByDefault(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	ref := runFinishedTurn(t, openStore(t, "redis://"+redis.Addr()), "t1")
	require.False(t, redis.Exists(db.Key(ref, db.JournalName("t1", 1))))
	require.True(t, redis.Exists(db.Key(ref, db.JournalName("t1", 2))), "the turn failed in it")
}

func TestStore_DeletesJournalsWithTheirSession(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	s := openStoreKeepingJournals(t, "redis://"+redis.Addr())
	ref := runFinishedTurn(t, s, "t1")
	require.NoError(t, errorOf(s.DeleteSession(t.Context(), ref)))
	for _, k := range redis.Keys() {
		require.NotContains(t, k, ":jrnl:")
	}
}

// The costs of a store that keeps journals match the table in the package comment.
func TestStore_CostOfKeptJournals(t *testing.T) {
	t.Parallel()
	s, seen := newCountedStore(t, Config{KeepJournals: memorytest.KeepJournals})
	costs := func(name string, trips, writes int, do func() error) {
		t.Helper()
		before := *seen
		require.NoError(t, do(), name)
		require.Equal(t, [2]int{trips, writes}, [2]int{seen.trips - before.trips, seen.writes - before.writes}, "trips and writes of "+name)
	}
	ref := session.Ref{Tenant: "default", Session: "s1"}
	for _, id := range []string{"t1", "t2"} {
		begun, err := s.BeginTurn(t.Context(), newBegin("s1", id))
		require.NoError(t, err)
		costs("commit", 1, 1, func() error {
			_, err := s.CommitStep(t.Context(), memory.Commit{
				Ref: ref, TurnID: id, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence, Result: execution.Result{Step: 1},
				Outcome: session.OutcomeCompleted, Journal: newJournalEntries(),
			})
			return err
		})
	}
	costs("recording", 1, 0, func() error {
		_, err := s.Recording(t.Context(), ref, "t2", 1, 0)
		return err
	})
	costs("compact", 7, 2, func() error {
		_, err := s.CompactSession(t.Context(), memory.Compact{Ref: ref, Keep: 1})
		return err
	})
	costs("clear", 6, 1, func() error { return s.ClearSession(t.Context(), ref) })
}
