// Package desired caches the desired state of instances and agents, which operators set: pause, drain or
// quarantine. It watches the registry for changes.
package desired

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry"
)

// State caches the desired states that operators recorded for instances and agents. It watches the registry. Safe
// for concurrent use.
type State struct {
	onChange func() // called after each change, without the lock

	mu                sync.Mutex
	source            source
	states            map[registry.Key]registry.DesiredState
	quarantined       map[string]registry.DesiredState // the states that quarantine an agent, by agent
	quarantineStarted map[string]chan struct{}         // closed while the agent is quarantined, by agent
}

// source says where the known desired states come from.
type source int

const (
	initial      source = iota // nothing is known yet, but instances may get steps
	awaited                    // nothing is known yet, so no instance may get steps
	fromSnapshot               // the quarantines of a snapshot, which may be incomplete
	fromRegistry
)

// New returns an empty State. onChange is called after each change.
func New(onChange func()) *State {
	return &State{
		onChange: onChange, states: map[registry.Key]registry.DesiredState{},
		quarantined: map[string]registry.DesiredState{}, quarantineStarted: map[string]chan struct{}{},
	}
}

// update applies a change to the desired states and calls onChange.
func (s *State) update(apply func()) {
	s.mu.Lock()
	apply()
	s.updateQuarantines()
	s.mu.Unlock()
	s.onChange()
}

// updateQuarantines updates the channels of agents after a change of the desired states. It closes the channels of
// agents that are now quarantined, and removes the channels of agents that no longer are. The caller holds the
// lock.
func (s *State) updateQuarantines() {
	before := s.quarantined
	s.quarantined = registry.QuarantinedAgents(s.states)
	for agent := range s.quarantined {
		if _, already := before[agent]; !already {
			close(s.quarantineChannel(agent))
		}
	}
	for agent := range before {
		if _, still := s.quarantined[agent]; !still {
			delete(s.quarantineStarted, agent)
		}
	}
}

// quarantineChannel returns the channel that is closed while an agent is quarantined. The caller holds the lock.
func (s *State) quarantineChannel(agent string) chan struct{} {
	if s.quarantineStarted[agent] == nil {
		s.quarantineStarted[agent] = make(chan struct{})
	}
	return s.quarantineStarted[agent]
}

// Watch updates the desired states from the registry until ctx ends.
func (s *State) Watch(ctx context.Context, d registry.DesiredStates) error {
	return d.WatchDesiredStates(ctx, func(all map[registry.Key]registry.DesiredState) {
		s.update(func() { s.states, s.source = all, fromRegistry })
	})
}

// WithholdUntilKnown withholds steps from all instances until the desired states are known, from the registry or
// from a snapshot. Call it before any instance is known. It does not block.
func (s *State) WithholdUntilKnown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.source = awaited
}

// RestoreQuarantines applies the quarantines of a snapshot if the desired states are still unknown. Otherwise it
// does nothing.
func (s *State) RestoreQuarantines(quarantines []registry.DesiredState) {
	if s.IsKnown() {
		return
	}
	s.update(func() {
		if s.source != awaited { // the registry has already delivered newer states
			return
		}
		s.source = fromSnapshot
		for _, d := range quarantines {
			s.states[d.Key] = d
		}
	})
}

// IsKnown reports whether the desired states are known, from the registry or from a snapshot.
func (s *State) IsKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source != awaited
}

// IsFromRegistry reports whether the registry has delivered the desired states. A snapshot may be incomplete.
func (s *State) IsFromRegistry() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source == fromRegistry
}

// Put applies desired states at once, before the registry watch delivers them.
func (s *State) Put(desires ...registry.DesiredState) {
	s.update(func() {
		for _, d := range desires {
			s.states[d.Key] = d
		}
	})
}

// EndQuarantine lets an agent get steps again at once, before the registry watch delivers the change.
func (s *State) EndQuarantine(agent string) {
	s.update(func() { delete(s.states, registry.AgentKey(agent)) })
}

// Get returns the desired state of an instance (the zero value if none is recorded).
func (s *State) Get(key registry.Key) registry.DesiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[key]
}

// All returns a copy of all recorded desired states.
func (s *State) All() map[registry.Key]registry.DesiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.states)
}

// Restriction says why no instance of an agent may get steps, whatever the state of the instance is.
type Restriction int

// The restrictions.
const (
	Unrestricted Restriction = iota
	Quarantined
	StateUnknown // the desired states are not known yet
)

// Lookup returns the desired state of an instance and the restriction of its agent.
func (s *State) Lookup(key registry.Key) (registry.DesiredKind, Restriction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, restriction := s.states[key].Kind, Unrestricted
	if _, ok := s.quarantined[key.Agent]; ok {
		restriction = Quarantined
	} else if s.source == awaited {
		restriction = StateUnknown
	}
	return want, restriction
}

// Quarantine returns the desired state that quarantines an agent (guarantee S18), and whether there is one.
func (s *State) Quarantine(agent string) (registry.DesiredState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.quarantined[agent]
	return d, ok
}

// Quarantines returns the desired states that quarantine agents, ordered by agent.
func (s *State) Quarantines() []registry.DesiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.quarantined), func(a, b registry.DesiredState) int { return cmp.Compare(a.Key.Agent, b.Key.Agent) })
}

// QuarantineStarted returns a channel that is closed when the agent is quarantined.
func (s *State) QuarantineStarted(agent string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quarantineChannel(agent)
}

// RejectQuarantined returns an error if the caller is a worker of a quarantined agent.
func (s *State) RejectQuarantined(p identity.Principal, _ string) error {
	if p.Role != identity.Worker {
		return nil
	}
	if d, ok := s.Quarantine(p.Name); ok {
		return d.QuarantineError("call")
	}
	return nil
}
