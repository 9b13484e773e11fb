package contention

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/test/chaos/history"
)

// play runs a Run over a store until the given number of turns is committed or all callers have failed.
func play(t *testing.T, turns int, store memory.Store) *Run {
	t.Helper()
	var c *Run
	synctest.Test(t, func(t *testing.T) {
		c = New(history.NewClock(), "s", 1, store)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c.Start(ctx, 4)
		ended := make(chan struct{})
		go func() { defer close(ended); c.running.Wait() }()
		for c.Turns() < turns {
			time.Sleep(10 * time.Millisecond)
			select {
			case <-ended:
				return
			default:
			}
		}
		c.Finish()
		<-ended
	})
	return c
}

func violatedChecks(c *Run) map[string]bool {
	found := map[string]bool{}
	for _, v := range append(c.Violations(), c.Histories()...) {
		found[v.Check] = true
	}
	return found
}

// A run over a correct store finds no violation and sees all kinds of replies.
func TestRun_AcceptsACorrectStore(t *testing.T) {
	c := play(t, 300, slowStore{inmem.New(inmem.Config{})})
	require.Empty(t, append(c.Violations(), c.Histories()...))
	for _, reply := range AllReplies {
		require.Positive(t, c.ReplyCounts()[reply], reply)
	}
}

// A run over a correct store finds no violation when replies are lost.
func TestRun_AcceptsLostReplies(t *testing.T) {
	c := play(t, 300, &lossyStore{Store: slowStore{inmem.New(inmem.Config{})}})
	require.Empty(t, append(c.Violations(), c.Histories()...))
}

// Many sessions share the first epoch of a generation. Two grants of this epoch are equal only if they belong to
// the same turn.
func TestRun_SeparatesEpochsOfTwoSessions(t *testing.T) {
	c := New(history.NewClock(), "s", 1, inmem.New(inmem.Config{}))
	g := &sessionRun{Run: c, prefix: "s", name: "s", unresolved: map[string]rejectedWrite{}}
	for _, name := range []string{"s-1", "s-2"} {
		g.name = name
		begun, err := g.beginTurn(t.Context(), memory.Begin{
			Ref: g.sessionRef(), TurnID: name + "-t", TraceID: newTraceID(), Fingerprint: "f",
			Message: conversation.User(name + "-t"), LeaseTTL: leaseTTL, Window: maxReadMessages,
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, begun.Turn.Epoch)
		require.NoError(t, g.mustCommit(t.Context(), begun, "a"))
		require.NoError(t, g.loadSession(t.Context()))
	}
	require.Equal(t, 2, c.ReplyCounts()[Begun])
	require.Empty(t, append(c.Violations(), c.Histories()...))
}

func TestRun_FindsViolationsOfFaultyStores(t *testing.T) {
	for name, b := range map[string]struct {
		store func(memory.Store) memory.Store
		by    string
	}{
		"commits that are acknowledged and not stored": {func(s memory.Store) memory.Store { return discardingStore{s} }, history.SessionLog},
		"commits of any epoch":                         {func(s memory.Store) memory.Store { return &unfencedStore{Store: s} }, history.Epochs},
		"a journal that forgets":                       {func(s memory.Store) memory.Store { return emptyJournalStore{s} }, CheckJournalKept},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, violatedChecks(play(t, 200, b.store(slowStore{inmem.New(inmem.Config{})})))[b.by])
		})
	}
}

// slowStore delays each write as a real store does, so that calls overlap.
type slowStore struct{ memory.Store }

func (s slowStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	time.Sleep(time.Millisecond)
	defer time.Sleep(time.Millisecond)
	return s.Store.CommitStep(ctx, c)
}

func (s slowStore) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	time.Sleep(time.Millisecond)
	defer time.Sleep(time.Millisecond)
	return s.Store.BeginTurn(ctx, b)
}

// lossyStore drops every third reply.
type lossyStore struct {
	memory.Store
	calls atomic.Int64
}

func (l *lossyStore) dropReply(err error) error {
	if l.calls.Add(1)%3 == 0 {
		return failure.New(failure.SystemNetwork, "lossy", "the reply was lost")
	}
	return err
}

func (l *lossyStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	last, err := l.Store.CommitStep(ctx, c)
	return last, l.dropReply(err)
}

func (l *lossyStore) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := l.Store.BeginTurn(ctx, b)
	return begun, l.dropReply(err)
}

func (l *lossyStore) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	return l.dropReply(l.Store.Record(ctx, h, step, entries))
}

// discardingStore acknowledges every commit and stores none.
type discardingStore struct{ memory.Store }

func (l discardingStore) CommitStep(_ context.Context, c memory.Commit) (int64, error) {
	return c.Base + int64(len(c.Messages)), nil
}

// unfencedStore accepts every commit as if the latest holder had sent it.
type unfencedStore struct {
	memory.Store
	latest sync.Map // epochs by turn
}

func (u *unfencedStore) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := u.Store.BeginTurn(ctx, b)
	if err == nil {
		u.latest.Store(b.TurnID, begun.Turn.Epoch)
	}
	return begun, err
}

func (u *unfencedStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	if latest, ok := u.latest.Load(c.TurnID); ok {
		c.Epoch, _ = latest.(int64)
	}
	return u.Store.CommitStep(ctx, c)
}

type emptyJournalStore struct{ memory.Store }

func (emptyJournalStore) LoadJournal(context.Context, memory.Lease, int, int) ([]execution.Entry, error) {
	return nil, nil
}
