package dispatch

import (
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// slots counts the steps that this orchestrator has at each instance. It waits for a place
// instead of asking again and again, and gives steps to those that are less busy. The
// instance itself has the last word: there may be other orchestrators. Safe for concurrent
// use.
type slots struct {
	authority *routing.Authority

	mu     sync.Mutex
	agents map[string]*table
}

// table is the instances of one agent, as decisions see them.
type table struct {
	list       *instances.List
	candidates []selection.Candidate // of the list, with what is in flight
	index      map[string]int        // of the candidates, by id
	used       map[string]int32      // by id, also of those that are no candidates any more
	working    map[string]int32      // the part of used that is steps which were begun, by id
	turns      map[selection.Strategy]uint64
	line
}

func newSlots() *slots {
	return &slots{authority: routing.NewAuthority(), agents: map[string]*table{}}
}

// of is called with the lock held.
func (s *slots) of(agent string) *table {
	t, ok := s.agents[agent]
	if !ok {
		t = &table{used: map[string]int32{}, working: map[string]int32{}, turns: map[selection.Strategy]uint64{}}
		s.agents[agent] = t
	}
	return t
}

// follow makes the table that of a list; nothing has to be done while it is the same.
func (t *table) follow(list *instances.List) {
	if t.list == list {
		return
	}
	t.version++ // those who wait are told by the roster
	t.list, t.candidates, t.index = list, slices.Clone(list.Candidates), make(map[string]int, len(list.Candidates))
	for i := range t.candidates {
		c := &t.candidates[i]
		t.index[c.ID], c.InFlight = i, t.used[c.ID]
	}
}

func (t *table) add(id string, n int32) {
	if t.used[id] += n; t.used[id] == 0 {
		delete(t.used, id)
	}
	if i, ok := t.index[id]; ok {
		t.candidates[i].InFlight += n
	}
}

// works counts the steps that an instance has begun, and not only been asked to take.
func (s *slots) works(in registry.Instance, n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(in.Agent)
	if t.working[in.ID] += n; t.working[in.ID] == 0 {
		delete(t.working, in.ID)
	}
}

// turn numbers the steps of an agent for which a strategy is asked, from 0.
func (s *slots) turn(agent string, strategy selection.Strategy) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(agent)
	n := t.turns[strategy]
	t.turns[strategy]++
	return n
}

// take decides who of a list gets a step, and takes a place there, which the caller gives
// back once. Nobody decides in between, so that steps do not run to the same place. It is
// false when nobody has a place, or others come first. Candidates, and what they have in
// flight, are filled in. A step that gets a place leaves the line.
func (s *slots) take(agent string, list *instances.List, in selection.Input, w *waiter) (registry.Instance, selection.Decision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(agent)
	t.follow(list)
	if !t.mayLook(w) {
		return registry.Instance{}, selection.OthersFirst(), false
	}
	in.Candidates, in.Sizes, in.Withheld = t.candidates, list.Sizes, list.Withheld
	d := s.authority.Instance(in)
	i, ok := t.index[d.Target]
	t.hasLooked(w, ok)
	if !ok {
		return registry.Instance{}, d, false
	}
	t.add(d.Target, 1)
	return list.Instances[i], d, true
}

// candidates are the instances of a list with the steps that they have.
func (s *slots) candidates(agent string, list *instances.List) []selection.Candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(agent)
	t.follow(list)
	return slices.Clone(t.candidates)
}

// give returns a place. One that was not used, because the instance refused, tells nobody:
// whoever waits would only be refused as well.
func (s *slots) give(in registry.Instance, used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(in.Agent)
	t.add(in.ID, -1)
	if used {
		t.freed()
	}
}
