// Package state reads and updates the state of sessions and the state that sessions share.
package state

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// State implements memory.State. It is safe for concurrent use.
type State struct{ db *db.DB }

// New returns a state store backed by d.
func New(d *db.DB) *State { return &State{d} }

// GetState implements memory.State.
func (s *State) GetState(_ context.Context, ref session.Ref) (memory.Snapshot, error) {
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession("memory.GetState", ref)
	if err != nil {
		return memory.Snapshot{}, err
	}
	seen := memory.Snapshot{Values: map[string]json.RawMessage{}, Revisions: map[memory.Scope]int64{}, Keys: map[string]int64{}, Untrusted: c.UntrustedSource}
	for _, name := range []memory.Scope{memory.ScopeSession, memory.ScopeUser, memory.ScopeApp} {
		if name == memory.ScopeUser && c.User == "" {
			continue
		}
		scope := s.db.FindScope(ref, c, name)
		maps.Copy(seen.Values, scope.Values)
		seen.Revisions[name] = scope.Revision
		if name != memory.ScopeSession {
			maps.Copy(seen.Keys, scope.Keys)
		}
	}
	return seen, nil
}

// UpdateState implements memory.State.
func (s *State) UpdateState(_ context.Context, u memory.StateUpdate) (int64, error) {
	const op = "memory.UpdateState"
	if err := memory.CheckDelta(op, u.Delta); err != nil {
		return 0, err
	}
	name, err := memory.DeltaScope(op, u.Delta)
	if err != nil {
		return 0, err
	}
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession(op, u.Ref)
	if err != nil {
		return 0, err
	}
	if u.TurnID != "" {
		if _, _, err := s.db.FindTurnByLease(op, memory.Lease{Ref: u.Ref, TurnID: u.TurnID, Epoch: u.Epoch}); err != nil {
			return 0, err
		}
	}
	if name == memory.ScopeUser && c.User == "" {
		return 0, db.NewNoUserError(op, c)
	}
	scope := s.db.FindScope(u.Ref, c, name)
	request := db.RequestKey{Session: u.Ref.Session, ID: u.RequestID}
	if revision, known := scope.RevisionOfRequest(request); known {
		return revision, nil
	}
	if u.IfRevision != nil && *u.IfRevision != scope.Revision {
		return 0, db.NewRevisionMismatchError(op, *u.IfRevision, scope.Revision)
	}
	if !scope.HasRoom(u.Delta) {
		return 0, db.NewScopeFullError(op, name)
	}
	scope.ApplyChanges(u.Delta)
	scope.RememberRequest(request)
	c.LastActivity = s.db.Now()
	return scope.Revision, nil
}
