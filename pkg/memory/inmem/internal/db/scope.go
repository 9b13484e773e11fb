package db

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Owner identifies the owner of data that sessions share: a user of a tenant, or the whole tenant (if User is
// empty).
type Owner struct{ Tenant, User string }

// Scope holds the values and the revision of one state scope.
type Scope struct {
	Values    map[string]json.RawMessage
	Keys      map[string]int64 // revision that last set each key
	Revision  int64
	revisions map[RequestKey]int64 // revision after each request
	requests  []RequestKey         // oldest first
}

// RequestKey identifies a request to change state, so that a repeated request changes nothing.
type RequestKey struct{ Session, ID string }

func newScope() *Scope {
	return &Scope{Values: map[string]json.RawMessage{}, Keys: map[string]int64{}, revisions: map[RequestKey]int64{}}
}

// FindScope returns the state that a session sees under the name of a scope. The session must have a user if the
// scope is memory.ScopeUser.
func (d *DB) FindScope(ref session.Ref, c *Session, name memory.Scope) *Scope {
	owner := Owner{Tenant: ref.Tenant}
	switch name {
	case memory.ScopeUser:
		owner.User = c.User
	case memory.ScopeApp:
	default:
		return c.Scope
	}
	if d.Shared[owner] == nil {
		d.Shared[owner] = newScope()
	}
	return d.Shared[owner]
}

// HasRoom reports whether the scope stays within its limits after the changes. Changes that make the scope smaller
// always fit.
func (s *Scope) HasRoom(delta map[string]json.RawMessage) bool {
	values := s.valuesWith(delta)
	return len(values) <= max(memory.MaxStateKeys, len(s.Values)) &&
		stateSize(values) <= max(memory.MaxStateBytes, stateSize(s.Values))
}

// ApplyChanges applies changes to the scope. An empty value removes its key.
func (s *Scope) ApplyChanges(delta map[string]json.RawMessage) {
	s.Values = s.valuesWith(delta)
	s.Revision++
	for key, value := range delta {
		s.Keys[key] = s.Revision
		if len(value) == 0 {
			delete(s.Keys, key)
		}
	}
}

// valuesWith returns the values of the scope with the changes applied.
func (s *Scope) valuesWith(delta map[string]json.RawMessage) map[string]json.RawMessage {
	values := maps.Clone(s.Values)
	for key, value := range delta {
		values[key] = bytes.Clone(value)
		if len(value) == 0 {
			delete(values, key)
		}
	}
	return values
}

func stateSize(values map[string]json.RawMessage) int {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	return size
}

// Clear removes all values.
func (s *Scope) Clear() {
	s.Values, s.Keys = map[string]json.RawMessage{}, map[string]int64{}
	if s.Revision > 0 {
		s.Revision++
	}
}

// RememberRequest records the current revision as the answer to a request. The scope remembers only the latest
// memory.MaxRequests requests.
func (s *Scope) RememberRequest(r RequestKey) {
	s.revisions[r] = s.Revision
	s.requests = append(s.requests, r)
	if len(s.requests) > memory.MaxRequests {
		delete(s.revisions, s.requests[0])
		s.requests = slices.Delete(s.requests, 0, 1)
	}
}

// RevisionOfRequest returns the revision that answered a request (false if the scope does not remember the
// request).
func (s *Scope) RevisionOfRequest(r RequestKey) (int64, bool) {
	revision, known := s.revisions[r]
	return revision, known
}
