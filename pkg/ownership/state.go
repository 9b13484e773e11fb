package ownership

import (
	"maps"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Violation is what a write is refused with that is not the actor's to make (SO-6, SO-7). It
// changed nothing.
func Violation(op, key string, owner Owner, actor string) *failure.Error {
	return failure.Newf(failure.StateViolation, op, "state %q is owned by %s, but %s attempted to modify it", key, owner, actor).
		WithOwner(key, string(owner), actor)
}

// AgentState is the AGENT tier of one worker: what an agent keeps in RAM from its start to
// its end (SO-9). It holds any Go values, and hands them out as they are: what is changed
// in place must be safe for that. Safe for concurrent use.
type AgentState struct {
	*agentKeys
	refused func(*failure.Error) // nil: nobody is told
}

// agentKeys are the keys, and whose they are.
type agentKeys struct {
	actor    string
	declared map[string]Owner
	unknown  func(key string)

	mu     sync.RWMutex
	values map[string]any
	seen   map[string]bool
}

// NewAgentState returns an empty state of the agent actor. The agent may declare more keys,
// which come before all rules but those of prefixes (SO-5). The first write to a key that
// nobody declared calls unknown, if it is not nil.
func NewAgentState(actor string, declared map[string]Owner, unknown func(key string)) *AgentState {
	return &AgentState{agentKeys: &agentKeys{actor: actor, declared: declared, unknown: unknown, values: map[string]any{}, seen: map[string]bool{}}}
}

// Telling returns the same state for somebody who is told of each write that is refused, also of
// those whose error nobody looks at. refused may be called from any goroutine.
func (s *AgentState) Telling(refused func(*failure.Error)) *AgentState {
	return &AgentState{agentKeys: s.agentKeys, refused: refused}
}

// Get returns the value of a key and whether there is one.
func (s *AgentState) Get(key string) (any, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.values[key]
	return v, ok
}

// Set sets a key that is the agent's own. Modes: state_violation for the keys of other
// tiers.
func (s *AgentState) Set(key string, value any) error {
	known, err := s.owns("set", key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	first := !known && !s.seen[key]
	if first {
		s.seen[key] = true
	}
	s.values[key] = value
	s.mu.Unlock()
	if first && s.unknown != nil {
		s.unknown(key)
	}
	return nil
}

// Delete removes a key that is the agent's own. Modes: state_violation.
func (s *AgentState) Delete(key string) error {
	if _, err := s.owns("delete", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, key)
	return nil
}

// Keys are those that are set, sorted.
func (s *AgentState) Keys() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.values))
}

// Clear forgets everything: the agent has ended (SO-9).
func (s *AgentState) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.values)
	clear(s.seen)
}

// Owner is who owns a key, for this agent.
func (s *AgentState) Owner(key string) (owner Owner, declared bool) { return of(key, s.declared) }

func (s *AgentState) owns(verb, key string) (declared bool, err error) {
	owner, declared := s.Owner(key)
	if owner != Agent {
		err := Violation("ownership."+verb, key, owner, s.actor)
		if s.refused != nil {
			s.refused(err)
		}
		return declared, err
	}
	return declared, nil
}

// TraceView is the ORCHESTRATOR tier as an agent sees it: what it was told of the trace. It
// cannot be written, because there is no method for it.
type TraceView struct{ values map[string]string }

// NewTraceView returns a view of values that do not change any more.
func NewTraceView(values map[string]string) TraceView { return TraceView{maps.Clone(values)} }

// Get returns the value of a key and whether there is one.
func (t TraceView) Get(key string) (string, bool) {
	v, ok := t.values[key]
	return v, ok
}

// Keys are those that there are, sorted.
func (t TraceView) Keys() []string { return slices.Sorted(maps.Keys(t.values)) }
