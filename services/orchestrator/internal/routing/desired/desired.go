// Package desired caches what operators want of instances and agents: which instance is to pause or
// drain, and which agent is quarantined. It is watched from the registry.
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

// State caches the desired state that operators recorded for instances and agents. It is
// watched from the registry. Safe for concurrent use.
type State struct {
	onChange func() // called after each change, without the lock

	mu              sync.Mutex
	source          source
	desires         map[registry.Key]registry.DesiredState
	quarantined     map[string]registry.DesiredState // by agent: the part of desires that quarantines it
	quarantineBegun map[string]chan struct{}         // by agent, closed while it is quarantined
}

// source is where the known desired state comes from.
type source int

const (
	initial      source = iota // nothing is recorded yet, and no caller waits for it
	awaited                    // nothing is known yet, so no instance may take steps
	fromSnapshot               // the quarantines of a snapshot; it may know less than the registry
	fromRegistry
)

// New returns an empty desired state. onChange is called after each change.
func New(onChange func()) *State {
	return &State{
		onChange: onChange, desires: map[registry.Key]registry.DesiredState{},
		quarantined: map[string]registry.DesiredState{}, quarantineBegun: map[string]chan struct{}{},
	}
}

// change applies a change to the desires and calls onChange.
func (s *State) change(apply func()) {
	s.mu.Lock()
	apply()
	s.updateQuarantines()
	s.mu.Unlock()
	s.onChange()
}

// updateQuarantines is called with the lock held, after each change of the desires. It closes
// the channels of agents that are quarantined now, and drops the channels of agents that no longer are.
func (s *State) updateQuarantines() {
	before := s.quarantined
	s.quarantined = registry.QuarantinedAgents(s.desires)
	for agent := range s.quarantined {
		if _, already := before[agent]; !already {
			close(s.beginChannel(agent))
		}
	}
	for agent := range before {
		if _, still := s.quarantined[agent]; !still {
			delete(s.quarantineBegun, agent)
		}
	}
}

// beginChannel returns the channel that is closed while an agent is quarantined. The caller holds the lock.
func (s *State) beginChannel(agent string) chan struct{} {
	if s.quarantineBegun[agent] == nil {
		s.quarantineBegun[agent] = make(chan struct{})
	}
	return s.quarantineBegun[agent]
}

// Watch keeps the desired state up to date from the registry until ctx ends.
func (s *State) Watch(ctx context.Context, d registry.DesiredStates) error {
	return d.WatchDesiredStates(ctx, func(all map[registry.Key]registry.DesiredState) {
		s.change(func() { s.desires, s.source = all, fromRegistry })
	})
}

// Await keeps steps from all instances until the desired state is known, from the registry or from a snapshot.
// It is called before any instance is known.
func (s *State) Await() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.source = awaited
}

// Recover applies the quarantines of a snapshot while the desired state is unknown. Otherwise it ignores them.
func (s *State) Recover(quarantines []registry.DesiredState) {
	if s.IsKnown() {
		return
	}
	s.change(func() {
		if s.source != awaited { // the registry was faster
			return
		}
		s.source = fromSnapshot
		for _, d := range quarantines {
			s.desires[d.Key] = d
		}
	})
}

// IsKnown reports whether the desired state is known, from the registry or from a snapshot.
func (s *State) IsKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source != awaited
}

// IsFromRegistry reports whether the registry has delivered the desired state. The one of a snapshot may be
// incomplete.
func (s *State) IsFromRegistry() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source == fromRegistry
}

// Put applies desires at once, before the watch of the registry delivers them.
func (s *State) Put(desires ...registry.DesiredState) {
	s.change(func() {
		for _, d := range desires {
			s.desires[d.Key] = d
		}
	})
}

// EndQuarantine lets an agent take steps again at once, before the watch of the registry says so.
func (s *State) EndQuarantine(agent string) {
	s.change(func() { delete(s.desires, registry.AgentKey(agent)) })
}

// Get returns the desire that is recorded for an instance (zero when there is none).
func (s *State) Get(key registry.Key) registry.DesiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desires[key]
}

// All returns a copy of all recorded desires.
func (s *State) All() map[registry.Key]registry.DesiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.desires)
}

// Restriction says why no instance of an agent may take steps, whatever its own state is.
type Restriction int

// The restrictions.
const (
	Unrestricted Restriction = iota
	Quarantined
	StateUnknown // the desired state is awaited
)

// Lookup returns what operators want of an instance and what restricts its whole agent.
func (s *State) Lookup(key registry.Key) (registry.DesiredKind, Restriction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, restriction := s.desires[key].Kind, Unrestricted
	if _, ok := s.quarantined[key.Agent]; ok {
		restriction = Quarantined
	} else if s.source == awaited {
		restriction = StateUnknown
	}
	return want, restriction
}

// Quarantine returns the desire that quarantines an agent (S18), and whether there is one.
func (s *State) Quarantine(agent string) (registry.DesiredState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.quarantined[agent]
	return d, ok
}

// Quarantines returns the desires that quarantine agents, by agent.
func (s *State) Quarantines() []registry.DesiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.quarantined), func(a, b registry.DesiredState) int { return cmp.Compare(a.Key.Agent, b.Key.Agent) })
}

// QuarantineBegun returns a channel that is closed once the agent is quarantined.
func (s *State) QuarantineBegun(agent string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beginChannel(agent)
}

// RejectQuarantined returns an error for every call from a worker whose agent is quarantined.
func (s *State) RejectQuarantined(p identity.Principal, _ string) error {
	if p.Role != identity.Worker {
		return nil
	}
	if d, ok := s.Quarantine(p.Name); ok {
		return d.QuarantineError("call")
	}
	return nil
}
