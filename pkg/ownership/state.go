package ownership

import (
	"maps"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// NewViolationError returns the error for a rejected write to state of another owner (SO-6, SO-7).
func NewViolationError(op, key string, owner Owner, actor string) *failure.Error {
	return failure.Newf(failure.StateViolation, op, "state %q is owned by %s, but %s attempted to modify it", key, owner, actor).
		WithOwner(key, string(owner), actor)
}

// AgentState is the AGENT tier of one worker: the values that an agent keeps in RAM from its startup to its
// shutdown (SO-9). It holds Go values and does not copy them, so values that change in place need their own
// synchronization. AgentState is safe for concurrent use.
type AgentState struct {
	*agentData
	onRejected func(*failure.Error) // called with each rejected write (may be nil)
}

// agentData holds the values and the declared owners, which all views of an AgentState share.
type agentData struct {
	actor    string
	declared map[string]Owner
	unknown  func(key string)

	mu       sync.RWMutex
	values   map[string]any
	reported map[string]bool
}

// NewAgentState returns the empty state of the agent actor. The agent may declare owners of additional keys.
// Declared keys apply before all rules except prefixes (SO-5). The first write to each undeclared key calls
// unknown, which may be nil.
func NewAgentState(actor string, declared map[string]Owner, unknown func(key string)) *AgentState {
	return &AgentState{agentData: &agentData{actor: actor, declared: declared, unknown: unknown, values: map[string]any{}, reported: map[string]bool{}}}
}

// WithRejectionHandler returns a view of the state that calls onRejected with the error of each rejected write,
// even if the writer ignores the error. It may call onRejected from any goroutine.
func (s *AgentState) WithRejectionHandler(onRejected func(*failure.Error)) *AgentState {
	return &AgentState{agentData: s.agentData, onRejected: onRejected}
}

// Get returns the value of a key, and whether it is set.
func (s *AgentState) Get(key string) (any, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.values[key]
	return v, ok
}

// Set sets a key of the agent. Modes: state_violation for a key of another tier.
func (s *AgentState) Set(key string, value any) error {
	known, err := s.checkOwner("set", key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	first := !known && !s.reported[key]
	if first {
		s.reported[key] = true
	}
	s.values[key] = value
	s.mu.Unlock()
	if first && s.unknown != nil {
		s.unknown(key)
	}
	return nil
}

// Delete removes a key of the agent. Modes: state_violation.
func (s *AgentState) Delete(key string) error {
	if _, err := s.checkOwner("delete", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, key)
	return nil
}

// Keys returns the keys that are set, sorted.
func (s *AgentState) Keys() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.values))
}

// Clear removes all values when the agent shuts down (SO-9).
func (s *AgentState) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.values)
	clear(s.reported)
}

// Owner returns the owner of a key for this agent, and whether a rule or a declaration covers the key.
func (s *AgentState) Owner(key string) (owner Owner, declared bool) {
	return ownerWithDeclared(key, s.declared)
}

func (s *AgentState) checkOwner(verb, key string) (declared bool, err error) {
	owner, declared := s.Owner(key)
	if owner != Agent {
		err := NewViolationError("ownership."+verb, key, owner, s.actor)
		if s.onRejected != nil {
			s.onRejected(err)
		}
		return declared, err
	}
	return declared, nil
}

// TraceView is a read-only view of the ORCHESTRATOR tier for an agent.
type TraceView struct{ values map[string]string }

// NewTraceView returns a view of a copy of values.
func NewTraceView(values map[string]string) TraceView { return TraceView{maps.Clone(values)} }

// Get returns the value of a key, and whether it is set.
func (t TraceView) Get(key string) (string, bool) {
	v, ok := t.values[key]
	return v, ok
}

// Keys returns all keys, sorted.
func (t TraceView) Keys() []string { return slices.Sorted(maps.Keys(t.values)) }
