package mesh

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/simulation/network"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

// tier is the MEMORY tier, which all memory services share. Each operation is atomic. An acknowledged write is durable,
// unless the schedule lets the store lose its last writes.
type tier struct {
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

func newTier(n *network.Network) *tier {
	t := &tier{clock: storeClock(n, schedule.Store), epochs: map[string]map[int64]string{}}
	t.store = inmem.New(inmem.Config{Clock: t.clock})
	return t
}

// rollBack loses the last writes: it repeats the earlier ones in an empty store. As the memory service does when it
// finds that the data went back in time, it begins a new generation.
func (t *tier) rollBack(lost int) {
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
func (t *tier) recordEpoch(b memory.Begin, begun memory.BeginResult) {
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

// storeClock returns the clock of a store, which jumps when the schedule says so.
func storeClock(n *network.Network, store string) func() time.Time {
	return func() time.Time { return time.Now().Add(n.Jump(store)) }
}

// remoteStore is the tier as one memory service reaches it. Its requests and replies pass the network.
type remoteStore struct {
	peer *network.Peer
	tier *tier
}

// call makes a call of the tier, whose reply may be lost.
func call[T any](ctx context.Context, s remoteStore, method, key string, do func(memory.Store) (T, error)) (result T, err error) {
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
func write(ctx context.Context, s remoteStore, method, key string, do func(memory.Store) error) error {
	_, err := call(ctx, s, method, key, func(t memory.Store) (struct{}, error) { return struct{}{}, do(t) })
	return err
}

// Ping reports whether the store can be reached.
func (s remoteStore) Ping(ctx context.Context) error {
	return write(ctx, s, "Ping", "", func(memory.Store) error { return nil })
}

// BeginTurn implements memory.Store.
func (s remoteStore) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	return call(ctx, s, "BeginTurn", b.Ref.Session, func(t memory.Store) (memory.BeginResult, error) {
		begun, err := t.BeginTurn(ctx, b)
		if err == nil && t == s.tier.store {
			s.tier.recordEpoch(b, begun)
		}
		return begun, err
	})
}

// RenewTurn implements memory.Store.
func (s remoteStore) RenewTurn(ctx context.Context, h memory.Lease, ttl time.Duration) error {
	return write(ctx, s, "RenewTurn", h.Ref.Session, func(t memory.Store) error { return t.RenewTurn(ctx, h, ttl) })
}

// ReleaseTurn implements memory.Store.
func (s remoteStore) ReleaseTurn(ctx context.Context, h memory.Lease) error {
	return write(ctx, s, "ReleaseTurn", h.Ref.Session, func(t memory.Store) error { return t.ReleaseTurn(ctx, h) })
}

// CommitStep implements memory.Store.
func (s remoteStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	return call(ctx, s, "CommitStep", c.Ref.Session, func(t memory.Store) (int64, error) { return t.CommitStep(ctx, c) })
}

// FailTurn implements memory.Store.
func (s remoteStore) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	return call(ctx, s, "FailTurn", f.Ref.Session, func(t memory.Store) (session.Turn, error) { return t.FailTurn(ctx, f) })
}

// Record implements memory.Store.
func (s remoteStore) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	return write(ctx, s, "Record", h.Ref.Session, func(t memory.Store) error { return t.Record(ctx, h, step, entries) })
}

// LoadJournal implements memory.Store.
func (s remoteStore) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	return call(ctx, s, "LoadJournal", h.Ref.Session, func(t memory.Store) ([]execution.Entry, error) { return t.LoadJournal(ctx, h, step, after) })
}

// Recording implements memory.Store.
func (s remoteStore) Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error) {
	return call(ctx, s, "Recording", ref.Session, func(t memory.Store) ([]execution.Entry, error) {
		return t.Recording(ctx, ref, turnID, step, from)
	})
}

// LoadRounds implements memory.Store.
func (s remoteStore) LoadRounds(ctx context.Context, ref session.Ref, agent string, from int64) ([]conversation.Rounds, error) {
	return call(ctx, s, "LoadRounds", ref.Session, func(t memory.Store) ([]conversation.Rounds, error) { return t.LoadRounds(ctx, ref, agent, from) })
}

// GetSession implements memory.Store.
func (s remoteStore) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	return call(ctx, s, "GetSession", ref.Session, func(t memory.Store) (session.Session, error) { return t.GetSession(ctx, ref) })
}

// ListSessions implements memory.Store.
func (s remoteStore) ListSessions(ctx context.Context, l memory.SessionFilter) (all []session.Session, next string, err error) {
	err = write(ctx, s, "ListSessions", "", func(t memory.Store) (err error) { all, next, err = t.ListSessions(ctx, l); return err })
	return all, next, err
}

// LoadHistory implements memory.Store.
func (s remoteStore) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	return call(ctx, s, "LoadHistory", ref.Session, func(t memory.Store) ([]conversation.Message, error) {
		return t.LoadHistory(ctx, ref, after, limit)
	})
}

// UpdateSession implements memory.Store.
func (s remoteStore) UpdateSession(ctx context.Context, u memory.SessionUpdate) (session.Session, error) {
	return call(ctx, s, "UpdateSession", u.Ref.Session, func(t memory.Store) (session.Session, error) { return t.UpdateSession(ctx, u) })
}

// CompactSession implements memory.Store.
func (s remoteStore) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	return call(ctx, s, "CompactSession", c.Ref.Session, func(t memory.Store) (conversation.Compaction, error) { return t.CompactSession(ctx, c) })
}

// ClearSession implements memory.Store.
func (s remoteStore) ClearSession(ctx context.Context, ref session.Ref) error {
	return write(ctx, s, "ClearSession", ref.Session, func(t memory.Store) error { return t.ClearSession(ctx, ref) })
}

// DeleteSession implements memory.Store.
func (s remoteStore) DeleteSession(ctx context.Context, ref session.Ref) (memory.ErasureReport, error) {
	return call(ctx, s, "DeleteSession", ref.Session, func(t memory.Store) (memory.ErasureReport, error) { return t.DeleteSession(ctx, ref) })
}

// EraseUser implements memory.Store.
func (s remoteStore) EraseUser(ctx context.Context, tenant, user string) (memory.UserErasure, error) {
	return call(ctx, s, "EraseUser", "", func(t memory.Store) (memory.UserErasure, error) { return t.EraseUser(ctx, tenant, user) })
}

// SearchMemory implements memory.Store.
func (s remoteStore) SearchMemory(ctx context.Context, q memory.Search) ([]memory.Hit, error) {
	return call(ctx, s, "SearchMemory", "", func(t memory.Store) ([]memory.Hit, error) { return t.SearchMemory(ctx, q) })
}

// GetState implements memory.Store.
func (s remoteStore) GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error) {
	return call(ctx, s, "GetState", ref.Session, func(t memory.Store) (memory.Snapshot, error) { return t.GetState(ctx, ref) })
}

// UpdateState implements memory.Store.
func (s remoteStore) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	return call(ctx, s, "UpdateState", "", func(t memory.Store) (int64, error) { return t.UpdateState(ctx, u) })
}

// StageArtifact implements memory.Store.
func (s remoteStore) StageArtifact(ctx context.Context, h memory.Lease, c memory.Content) (int64, error) {
	return call(ctx, s, "StageArtifact", h.Ref.Session, func(t memory.Store) (int64, error) { return t.StageArtifact(ctx, h, c) })
}

// AppendArtifact implements memory.Store.
func (s remoteStore) AppendArtifact(ctx context.Context, h memory.Lease, c memory.Content, offset int64, piece []byte) error {
	return write(ctx, s, "AppendArtifact", h.Ref.Session, func(t memory.Store) error { return t.AppendArtifact(ctx, h, c, offset, piece) })
}

// PutArtifact implements memory.Store.
func (s remoteStore) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	return call(ctx, s, "PutArtifact", h.Ref.Session, func(t memory.Store) (memory.Artifact, error) { return t.PutArtifact(ctx, h, a) })
}

// GetArtifact implements memory.Store.
func (s remoteStore) GetArtifact(ctx context.Context, ref session.Ref, name string, version int) (memory.Artifact, error) {
	return call(ctx, s, "GetArtifact", ref.Session, func(t memory.Store) (memory.Artifact, error) { return t.GetArtifact(ctx, ref, name, version) })
}

// ReadArtifact implements memory.Store.
func (s remoteStore) ReadArtifact(ctx context.Context, ref session.Ref, c memory.Content, offset int64) ([]byte, error) {
	return call(ctx, s, "ReadArtifact", ref.Session, func(t memory.Store) ([]byte, error) { return t.ReadArtifact(ctx, ref, c, offset) })
}

// ListArtifacts implements memory.Store.
func (s remoteStore) ListArtifacts(ctx context.Context, ref session.Ref) ([]memory.Artifact, error) {
	return call(ctx, s, "ListArtifacts", ref.Session, func(t memory.Store) ([]memory.Artifact, error) { return t.ListArtifacts(ctx, ref) })
}

// DeleteArtifact implements memory.Store.
func (s remoteStore) DeleteArtifact(ctx context.Context, h memory.Lease, name string, version int) error {
	return write(ctx, s, "DeleteArtifact", h.Ref.Session, func(t memory.Store) error { return t.DeleteArtifact(ctx, h, name, version) })
}

// GetConfig implements memory.Store.
func (s remoteStore) GetConfig(ctx context.Context, agent string) (memory.Configuration, error) {
	return call(ctx, s, "GetConfig", agent, func(t memory.Store) (memory.Configuration, error) { return t.GetConfig(ctx, agent) })
}

// PutConfig implements memory.Store.
func (s remoteStore) PutConfig(ctx context.Context, c memory.ConfigChange) (memory.Configuration, error) {
	return call(ctx, s, "PutConfig", "", func(t memory.Store) (memory.Configuration, error) { return t.PutConfig(ctx, c) })
}
