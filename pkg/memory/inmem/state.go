package inmem

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// owner is who shares a scope that belongs to no session.
type owner struct{ tenant, user string } // no user: the tenant

// scope is what is remembered for those who share it.
type scope struct {
	values   map[string]json.RawMessage
	revision int64
	answered map[request]int64 // the revision after it
	requests []request         // the latest last
}

type request struct{ session, id string }

func newScope() *scope {
	return &scope{values: map[string]json.RawMessage{}, answered: map[request]int64{}}
}

// GetState implements memory.State.
func (s *Store) GetState(_ context.Context, ref session.Ref) (memory.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get("memory.GetState", ref)
	if err != nil {
		return memory.Snapshot{}, err
	}
	seen := memory.Snapshot{Values: map[string]json.RawMessage{}, Revisions: map[memory.Scope]int64{}, Untrusted: c.source}
	for _, name := range []memory.Scope{memory.ScopeSession, memory.ScopeUser, memory.ScopeApp} {
		if name == memory.ScopeUser && c.User == "" {
			continue
		}
		scope := s.scope(ref, c, name)
		maps.Copy(seen.Values, scope.values)
		seen.Revisions[name] = scope.revision
	}
	return seen, nil
}

// UpdateState implements memory.State.
func (s *Store) UpdateState(_ context.Context, u memory.StateUpdate) (int64, error) {
	const op = "memory.UpdateState"
	if err := memory.CheckDelta(op, u.Delta); err != nil {
		return 0, err
	}
	name, err := memory.DeltaScope(op, u.Delta)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get(op, u.Ref)
	if err != nil {
		return 0, err
	}
	if u.TurnID != "" {
		if _, _, err := s.held(op, memory.Lease{Ref: u.Ref, TurnID: u.TurnID, Epoch: u.Epoch}); err != nil {
			return 0, err
		}
	}
	if name == memory.ScopeUser && c.User == "" {
		return 0, noUser(op, c)
	}
	scope := s.scope(u.Ref, c, name)
	this := request{u.Ref.Session, u.RequestID}
	if revision, known := scope.answered[this]; known {
		return revision, nil
	}
	if u.IfRevision != nil && *u.IfRevision != scope.revision {
		return 0, anotherRevision(op, *u.IfRevision, scope.revision)
	}
	if !scope.fits(u.Delta) {
		return 0, stateFull(op, name)
	}
	scope.change(u.Delta)
	scope.know(this)
	c.LastActivity = s.now()
	return scope.revision, nil
}

// scope is who shares what the session sees under a name.
func (s *Store) scope(ref session.Ref, c *conversed, name memory.Scope) *scope {
	shares := owner{tenant: ref.Tenant}
	switch name {
	case memory.ScopeUser:
		shares.user = c.User
	case memory.ScopeApp:
	default:
		return c.state
	}
	if s.shared[shares] == nil {
		s.shared[shares] = newScope()
	}
	return s.shared[shares]
}

// split parts changes by scope.
func split(delta map[string]json.RawMessage) map[memory.Scope]map[string]json.RawMessage {
	deltas := map[memory.Scope]map[string]json.RawMessage{}
	for key, value := range delta {
		name := memory.ScopeOf(key)
		if deltas[name] == nil {
			deltas[name] = map[string]json.RawMessage{}
		}
		deltas[name][key] = value
	}
	return deltas
}

// after are the values with the changes made.
func (s *scope) after(delta map[string]json.RawMessage) map[string]json.RawMessage {
	values := maps.Clone(s.values)
	for key, value := range delta {
		values[key] = bytes.Clone(value)
		if len(value) == 0 {
			delete(values, key)
		}
	}
	return values
}

// fits reports whether the scope may hold what it would hold after the changes. What makes
// it smaller always fits.
func (s *scope) fits(delta map[string]json.RawMessage) bool {
	values := s.after(delta)
	size := weight(values)
	return len(values) <= max(memory.MaxStateKeys, len(s.values)) && size <= max(memory.MaxStateBytes, weight(s.values))
}

func weight(values map[string]json.RawMessage) int {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	return size
}

func (s *scope) change(delta map[string]json.RawMessage) {
	s.values = s.after(delta)
	s.revision++
}

func (s *scope) know(r request) {
	s.answered[r] = s.revision
	s.requests = append(s.requests, r)
	if len(s.requests) > memory.MaxRequests {
		delete(s.answered, s.requests[0])
		s.requests = slices.Delete(s.requests, 0, 1)
	}
}

func (s *scope) clear() {
	s.values = map[string]json.RawMessage{}
	if s.revision > 0 {
		s.revision++
	}
}

func noUser(op string, c *conversed) error {
	return failure.Newf(failure.UserInvalidInput, op, "session %s has no user, so it has no user: keys; begin a session with a user", c.ID).With("session_id", c.ID)
}

func stateFull(op string, name memory.Scope) error {
	return failure.Newf(failure.ResourceQuota, op, "the state of the scope %s would be too large; it holds at most %d keys and %d bytes: remove some, or store it as an artifact",
		name, memory.MaxStateKeys, memory.MaxStateBytes).With("scope", string(name))
}
