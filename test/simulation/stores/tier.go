// Package stores holds what the processes of a simulated mesh share: the store of sessions and the registry. Each
// process reaches them through the network of the mesh.
package stores

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/test/simulation/network"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

// Tier is the MEMORY tier, which all memory services share. Each operation is atomic. An acknowledged write is durable,
// unless the schedule lets the store lose its last writes.
type Tier struct {
	clock func() time.Time

	mu         sync.Mutex
	store      *inmem.Store
	generation int64
	writes     []storedWrite
	epochs     map[string]map[int64]string // who was granted each epoch, by session
	reused     []string                    // epochs that were granted again
}

// storedWrite is a write that the store can repeat, with the time of the store.
type storedWrite struct {
	at time.Time
	do func(memory.Store) error
}

// NewTier returns an empty tier, whose clock jumps when the schedule says so.
func NewTier(n *network.Network) *Tier {
	t := &Tier{clock: Clock(n, schedule.Store), epochs: map[string]map[int64]string{}}
	t.store = inmem.New(inmem.Config{Clock: t.clock})
	return t
}

// RollBack loses the last writes: it repeats the earlier ones in an empty store. As the memory service does when it
// finds that the data went back in time, it begins a new generation.
func (t *Tier) RollBack(lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var at time.Time
	now := func() time.Time { return at }
	restored := inmem.New(inmem.Config{Clock: func() time.Time { return now() }, Generation: t.generation})
	t.writes = t.writes[:max(0, len(t.writes)-lost)]
	for _, w := range t.writes {
		at = w.at
		_ = w.do(restored) // as it did before
	}
	now = t.clock
	t.generation++
	restored.StartGeneration(t.generation)
	t.store = restored
}

// recordEpoch records who was granted an epoch.
func (t *Tier) recordEpoch(b memory.Begin, begun memory.BeginResult) {
	if begun.Status != memory.StatusBegun {
		return
	}
	holder := fmt.Sprintf("turn %s, trace %s, attempt %d", begun.Turn.ID, b.TraceID, begun.Turn.Attempt)
	granted := t.epochs[b.Ref.Session]
	if granted == nil {
		granted = map[int64]string{}
		t.epochs[b.Ref.Session] = granted
	}
	if before, ok := granted[begun.Turn.Epoch]; ok && before != holder {
		t.reused = append(t.reused, fmt.Sprintf("%s: epoch %d was granted to %s, and then to %s", b.Ref.Session, begun.Turn.Epoch, before, holder))
	}
	granted[begun.Turn.Epoch] = holder
}

// Clock returns the clock of a store, which jumps when the schedule says so.
func Clock(n *network.Network, store string) func() time.Time {
	return func() time.Time { return time.Now().Add(n.Jump(store)) }
}

// remote is the tier as one memory service reaches it. Its requests and replies pass the network.
type remote struct {
	peer *network.Peer
	tier *Tier
}

// Remote is the store of one memory service: the parts of its contract.
type Remote struct {
	turns
	journal
	sessions
	state
	artifacts
	configs
}

type (
	turns     struct{ remote }
	journal   struct{ remote }
	sessions  struct{ remote }
	state     struct{ remote }
	artifacts struct{ remote }
	configs   struct{ remote }
)

// For returns the tier as a process reaches it.
func (t *Tier) For(peer *network.Peer) Remote {
	r := remote{peer, t}
	return Remote{turns{r}, journal{r}, sessions{r}, state{r}, artifacts{r}, configs{r}}
}

// call makes a call of the tier, whose reply may be lost.
func call[T any](ctx context.Context, s remote, method, key string, do func(memory.Store) (T, error)) (result T, err error) {
	err = s.peer.Call(ctx, schedule.Store, method, key, func(context.Context) error {
		s.tier.mu.Lock()
		defer s.tier.mu.Unlock()
		s.tier.writes = append(s.tier.writes, storedWrite{s.tier.clock(), func(t memory.Store) error { _, err := do(t); return err }})
		var err error
		result, err = do(s.tier.store)
		return err
	})
	if err != nil {
		var nothing T
		return nothing, err
	}
	return result, nil
}

// write is call for a method without a result.
func write(ctx context.Context, s remote, method, key string, do func(memory.Store) error) error {
	_, err := call(ctx, s, method, key, func(t memory.Store) (struct{}, error) { return struct{}{}, do(t) })
	return err
}

// Ping reports whether the store can be reached.
func (s Remote) Ping(ctx context.Context) error {
	return write(ctx, s.turns.remote, "Ping", "", func(memory.Store) error { return nil })
}

// ReusedEpochs returns the epochs that the store granted twice.
func (t *Tier) ReusedEpochs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reused
}
