package contest

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

// play runs a contest over a store until the given number of turns is committed, or all players have given up.
func play(t *testing.T, turns int, store memory.Store) *Contest {
	t.Helper()
	var c *Contest
	synctest.Test(t, func(t *testing.T) {
		c = New(history.NewClock(), "s", 1, store)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c.Go(ctx, 4)
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

func checks(c *Contest) map[string]bool {
	found := map[string]bool{}
	for _, v := range append(c.Found(), c.Histories()...) {
		found[v.Check] = true
	}
	return found
}

// The oracle keeps every promise, and the contest sees all kinds of replies.
func TestContest_AcceptsTheOracle(t *testing.T) {
	c := play(t, 300, slow{inmem.New(inmem.Config{})})
	require.Empty(t, append(c.Found(), c.Histories()...))
	for _, reply := range All {
		require.Positive(t, c.Seen()[reply], reply)
	}
}

// The same holds when replies are lost.
func TestContest_AcceptsLostReplies(t *testing.T) {
	c := play(t, 300, &lossy{Store: slow{inmem.New(inmem.Config{})}})
	require.Empty(t, append(c.Found(), c.Histories()...))
}

// Many sessions share the first epoch of a generation. Two grants are equal only if they belong to the same
// turn.
func TestContest_SeparatesGrantsOfTwoSessions(t *testing.T) {
	c := New(history.NewClock(), "s", 1, inmem.New(inmem.Config{}))
	g := &game{Contest: c, first: "s", name: "s", unresolved: map[string]attempt{}}
	for _, name := range []string{"s-1", "s-2"} {
		g.name = name
		begun, err := g.begin(t.Context(), memory.Begin{
			Ref: g.ref(), TurnID: name + "-t", TraceID: trace(), Fingerprint: "f", Message: conversation.User(name + "-t"), LeaseTTL: lease, Window: window,
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, begun.Turn.Epoch)
		require.NoError(t, g.mustCommit(t.Context(), begun, "a"))
		require.NoError(t, g.load(t.Context()))
	}
	require.Equal(t, 2, c.Seen()[Begun])
	require.Empty(t, append(c.Found(), c.Histories()...))
}

func TestContest_FindsViolations(t *testing.T) {
	for name, b := range map[string]struct {
		store func(memory.Store) memory.Store
		by    string
	}{
		"commits that are acknowledged and not stored": {func(s memory.Store) memory.Store { return forgetful{s} }, history.SessionLog},
		"commits of any epoch":                         {func(s memory.Store) memory.Store { return &unfenced{Store: s} }, history.Epochs},
		"a journal that forgets":                       {func(s memory.Store) memory.Store { return amnesiac{s} }, JournalKept},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, checks(play(t, 200, b.store(slow{inmem.New(inmem.Config{})})))[b.by])
		})
	}
}

// slow delays each write, as a real store does, so that calls overlap.
type slow struct{ memory.Store }

func (s slow) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	time.Sleep(time.Millisecond)
	defer time.Sleep(time.Millisecond)
	return s.Store.CommitStep(ctx, c)
}

func (s slow) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	time.Sleep(time.Millisecond)
	defer time.Sleep(time.Millisecond)
	return s.Store.BeginTurn(ctx, b)
}

// lossy drops every third reply.
type lossy struct {
	memory.Store
	calls atomic.Int64
}

func (l *lossy) lose(err error) error {
	if l.calls.Add(1)%3 == 0 {
		return failure.New(failure.SystemNetwork, "lossy", "the reply was lost")
	}
	return err
}

func (l *lossy) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	last, err := l.Store.CommitStep(ctx, c)
	return last, l.lose(err)
}

func (l *lossy) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	begun, err := l.Store.BeginTurn(ctx, b)
	return begun, l.lose(err)
}

func (l *lossy) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	return l.lose(l.Store.Record(ctx, h, step, entries))
}

type forgetful struct{ memory.Store }

func (f forgetful) CommitStep(_ context.Context, c memory.Commit) (int64, error) {
	return c.Base + int64(len(c.Messages)), nil
}

// unfenced accepts every commit as if it came from the latest holder.
type unfenced struct {
	memory.Store
	latest sync.Map // epochs by turn
}

func (u *unfenced) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	begun, err := u.Store.BeginTurn(ctx, b)
	if err == nil {
		u.latest.Store(b.TurnID, begun.Turn.Epoch)
	}
	return begun, err
}

func (u *unfenced) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	if latest, ok := u.latest.Load(c.TurnID); ok {
		c.Epoch, _ = latest.(int64)
	}
	return u.Store.CommitStep(ctx, c)
}

type amnesiac struct{ memory.Store }

func (amnesiac) LoadJournal(context.Context, memory.Lease, int, int) ([]execution.Entry, error) {
	return nil, nil
}
