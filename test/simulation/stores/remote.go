package stores

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// BeginTurn implements memory.Store.
func (s turns) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	return call(ctx, s.remote, "BeginTurn", b.Ref.Session, func(t memory.Store) (memory.BeginResult, error) {
		begun, err := t.BeginTurn(ctx, b)
		if err == nil && t == s.tier.store {
			s.tier.recordEpoch(b, begun)
		}
		return begun, err
	})
}

// RenewTurn implements memory.Store.
func (s turns) RenewTurn(ctx context.Context, h memory.Lease, ttl time.Duration) error {
	return write(ctx, s.remote, "RenewTurn", h.Ref.Session, func(t memory.Store) error { return t.RenewTurn(ctx, h, ttl) })
}

// ReleaseTurn implements memory.Store.
func (s turns) ReleaseTurn(ctx context.Context, h memory.Lease) error {
	return write(ctx, s.remote, "ReleaseTurn", h.Ref.Session, func(t memory.Store) error { return t.ReleaseTurn(ctx, h) })
}

// CommitStep implements memory.Store.
func (s turns) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	return call(ctx, s.remote, "CommitStep", c.Ref.Session, func(t memory.Store) (int64, error) { return t.CommitStep(ctx, c) })
}

// FailTurn implements memory.Store.
func (s turns) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	return call(ctx, s.remote, "FailTurn", f.Ref.Session, func(t memory.Store) (session.Turn, error) { return t.FailTurn(ctx, f) })
}

// Record implements memory.Store.
func (s journal) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	return write(ctx, s.remote, "Record", h.Ref.Session, func(t memory.Store) error { return t.Record(ctx, h, step, entries) })
}

// LoadJournal implements memory.Store.
func (s journal) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	return call(ctx, s.remote, "LoadJournal", h.Ref.Session, func(t memory.Store) ([]execution.Entry, error) { return t.LoadJournal(ctx, h, step, after) })
}

// Recording implements memory.Store.
func (s journal) Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error) {
	return call(ctx, s.remote, "Recording", ref.Session, func(t memory.Store) ([]execution.Entry, error) {
		return t.Recording(ctx, ref, turnID, step, from)
	})
}

// LoadRounds implements memory.Store.
func (s journal) LoadRounds(ctx context.Context, ref session.Ref, agent string, from int64, before *conversation.Rounds) ([]conversation.Rounds, error) {
	return call(ctx, s.remote, "LoadRounds", ref.Session, func(t memory.Store) ([]conversation.Rounds, error) {
		return t.LoadRounds(ctx, ref, agent, from, before)
	})
}

// GetSession implements memory.Store.
func (s sessions) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	return call(ctx, s.remote, "GetSession", ref.Session, func(t memory.Store) (session.Session, error) { return t.GetSession(ctx, ref) })
}

// ListSessions implements memory.Store.
func (s sessions) ListSessions(ctx context.Context, l memory.SessionFilter) (all []session.Session, next string, err error) {
	err = write(ctx, s.remote, "ListSessions", "", func(t memory.Store) (err error) { all, next, err = t.ListSessions(ctx, l); return err })
	return all, next, err
}

// LoadHistory implements memory.Store.
func (s sessions) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	return call(ctx, s.remote, "LoadHistory", ref.Session, func(t memory.Store) ([]conversation.Message, error) {
		return t.LoadHistory(ctx, ref, after, limit)
	})
}

// UpdateSession implements memory.Store.
func (s sessions) UpdateSession(ctx context.Context, u memory.SessionUpdate) (session.Session, error) {
	return call(ctx, s.remote, "UpdateSession", u.Ref.Session, func(t memory.Store) (session.Session, error) { return t.UpdateSession(ctx, u) })
}

// CompactSession implements memory.Store.
func (s sessions) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	return call(ctx, s.remote, "CompactSession", c.Ref.Session, func(t memory.Store) (conversation.Compaction, error) { return t.CompactSession(ctx, c) })
}

// ClearSession implements memory.Store.
func (s sessions) ClearSession(ctx context.Context, ref session.Ref) error {
	return write(ctx, s.remote, "ClearSession", ref.Session, func(t memory.Store) error { return t.ClearSession(ctx, ref) })
}

// DeleteSession implements memory.Store.
func (s sessions) DeleteSession(ctx context.Context, ref session.Ref) (memory.ErasureReport, error) {
	return call(ctx, s.remote, "DeleteSession", ref.Session, func(t memory.Store) (memory.ErasureReport, error) { return t.DeleteSession(ctx, ref) })
}

// EraseUser implements memory.Store.
func (s sessions) EraseUser(ctx context.Context, tenant, user string) (memory.UserErasure, error) {
	return call(ctx, s.remote, "EraseUser", "", func(t memory.Store) (memory.UserErasure, error) { return t.EraseUser(ctx, tenant, user) })
}

// SearchMemory implements memory.Store.
func (s sessions) SearchMemory(ctx context.Context, q memory.Search) ([]memory.Hit, error) {
	return call(ctx, s.remote, "SearchMemory", "", func(t memory.Store) ([]memory.Hit, error) { return t.SearchMemory(ctx, q) })
}

// GetState implements memory.Store.
func (s state) GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error) {
	return call(ctx, s.remote, "GetState", ref.Session, func(t memory.Store) (memory.Snapshot, error) { return t.GetState(ctx, ref) })
}

// UpdateState implements memory.Store.
func (s state) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	return call(ctx, s.remote, "UpdateState", "", func(t memory.Store) (int64, error) { return t.UpdateState(ctx, u) })
}

// StageArtifact implements memory.Store.
func (s artifacts) StageArtifact(ctx context.Context, h memory.Lease, c memory.Content) (int64, error) {
	return call(ctx, s.remote, "StageArtifact", h.Ref.Session, func(t memory.Store) (int64, error) { return t.StageArtifact(ctx, h, c) })
}

// AppendArtifact implements memory.Store.
func (s artifacts) AppendArtifact(ctx context.Context, h memory.Lease, c memory.Content, offset int64, piece []byte) error {
	return write(ctx, s.remote, "AppendArtifact", h.Ref.Session, func(t memory.Store) error { return t.AppendArtifact(ctx, h, c, offset, piece) })
}

// PutArtifact implements memory.Store.
func (s artifacts) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	return call(ctx, s.remote, "PutArtifact", h.Ref.Session, func(t memory.Store) (memory.Artifact, error) { return t.PutArtifact(ctx, h, a) })
}

// GetArtifact implements memory.Store.
func (s artifacts) GetArtifact(ctx context.Context, ref session.Ref, name string, version int) (memory.Artifact, error) {
	return call(ctx, s.remote, "GetArtifact", ref.Session, func(t memory.Store) (memory.Artifact, error) { return t.GetArtifact(ctx, ref, name, version) })
}

// ReadArtifact implements memory.Store.
func (s artifacts) ReadArtifact(ctx context.Context, ref session.Ref, c memory.Content, offset int64) ([]byte, error) {
	return call(ctx, s.remote, "ReadArtifact", ref.Session, func(t memory.Store) ([]byte, error) { return t.ReadArtifact(ctx, ref, c, offset) })
}

// ListArtifacts implements memory.Store.
func (s artifacts) ListArtifacts(ctx context.Context, ref session.Ref) ([]memory.Artifact, error) {
	return call(ctx, s.remote, "ListArtifacts", ref.Session, func(t memory.Store) ([]memory.Artifact, error) { return t.ListArtifacts(ctx, ref) })
}

// DeleteArtifact implements memory.Store.
func (s artifacts) DeleteArtifact(ctx context.Context, h memory.Lease, name string, version int) error {
	return write(ctx, s.remote, "DeleteArtifact", h.Ref.Session, func(t memory.Store) error { return t.DeleteArtifact(ctx, h, name, version) })
}

// GetConfig implements memory.Store.
func (s configs) GetConfig(ctx context.Context, agent string) (memory.Configuration, error) {
	return call(ctx, s.remote, "GetConfig", agent, func(t memory.Store) (memory.Configuration, error) { return t.GetConfig(ctx, agent) })
}

// PutConfig implements memory.Store.
func (s configs) PutConfig(ctx context.Context, c memory.ConfigChange) (memory.Configuration, error) {
	return call(ctx, s.remote, "PutConfig", "", func(t memory.Store) (memory.Configuration, error) { return t.PutConfig(ctx, c) })
}
