// Package queue holds the steps that wait for an instance, one line for each agent, and counts the
// steps that each instance has. A step waits here for a free slot instead of asking instances again
// and again.
package queue

import (
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Queue counts the steps that this orchestrator has at each instance, and orders those that wait
// for a slot. The instance itself has the last word, because there may be other orchestrators. Safe
// for concurrent use.
type Queue struct {
	decide func(selection.Input) selection.Decision

	mu     sync.Mutex
	agents map[string]*agent
}

// agent is the line of one agent and the slots of its instances.
type agent struct {
	line
	list       *instances.List
	candidates []selection.Candidate // of the list, with the steps in flight
	index      map[string]int        // of the candidates, by id
	inFlight   map[string]int32      // steps that have a slot, by instance id; also at instances that are gone
	running    map[string]int32      // the part of inFlight that the instance has begun
	counters   map[selection.Strategy]uint64
}

// New returns an empty queue. decide says which instance gets a step.
func New(decide func(selection.Input) selection.Decision) *Queue {
	return &Queue{decide: decide, agents: map[string]*agent{}}
}

// agent returns the line and the slots of an agent, and creates them when needed. The caller holds the lock.
func (q *Queue) agent(name string) *agent {
	a, ok := q.agents[name]
	if !ok {
		a = &agent{inFlight: map[string]int32{}, running: map[string]int32{}, counters: map[selection.Strategy]uint64{}}
		q.agents[name] = a
	}
	return a
}

// setList takes the candidates from a list. It does nothing when the list is unchanged.
func (a *agent) setList(list *instances.List) {
	if a.list == list {
		return
	}
	a.version++ // the instance cache wakes those who wait
	a.list, a.candidates, a.index = list, slices.Clone(list.Candidates), make(map[string]int, len(list.Candidates))
	for i := range a.candidates {
		c := &a.candidates[i]
		a.index[c.ID], c.InFlight = i, a.inFlight[c.ID]
	}
}

func (a *agent) addInFlight(id string, n int32) {
	if a.inFlight[id] += n; a.inFlight[id] == 0 {
		delete(a.inFlight, id)
	}
	if i, ok := a.index[id]; ok {
		a.candidates[i].InFlight += n
	}
}

// NextCounter numbers the steps of an agent for which a strategy decides, from 0.
func (q *Queue) NextCounter(agent string, strategy selection.Strategy) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(agent)
	n := a.counters[strategy]
	a.counters[strategy]++
	return n
}

// Take decides which instance of a list gets a step, and takes a slot there. The caller releases it
// once. Take fills in the candidates and their steps in flight, under one lock, so that steps which
// come at the same moment are spread. It returns false when no instance has a slot, or when other
// steps come first. A step that gets a slot leaves the line.
func (q *Queue) Take(agent string, list *instances.List, in selection.Input, w *Waiter) (registry.Instance, selection.Decision, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(agent)
	a.setList(list)
	if !a.mayLook(w) {
		return registry.Instance{}, selection.OthersFirst(), false
	}
	in.Candidates, in.Sizes, in.Withheld = a.candidates, list.Sizes, list.Withheld
	d := q.decide(in)
	i, ok := a.index[d.Target]
	a.recordLook(w, ok)
	if !ok {
		return registry.Instance{}, d, false
	}
	a.addInFlight(d.Target, 1)
	return list.Instances[i], d, true
}

// Release returns a slot. A slot that was not used, because the instance rejected the step, wakes
// no other step: that would be rejected as well.
func (q *Queue) Release(in registry.Instance, used bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(in.Agent)
	a.addInFlight(in.ID, -1)
	if used {
		a.addSlot()
	}
}

// StepBegan records that an instance began a step for which it was asked.
func (q *Queue) StepBegan(in registry.Instance) { q.addRunning(in, 1) }

// StepEnded records that a step of StepBegan has ended.
func (q *Queue) StepEnded(in registry.Instance) { q.addRunning(in, -1) }

func (q *Queue) addRunning(in registry.Instance, n int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(in.Agent)
	if a.running[in.ID] += n; a.running[in.ID] == 0 {
		delete(a.running, in.ID)
	}
}

// IsRunning reports whether a step of this orchestrator runs at an instance that may have the next
// step. Then a slot becomes free, however long it takes.
func (q *Queue) IsRunning(agent string, list *instances.List, may func(selection.Candidate) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(agent)
	a.setList(list)
	return slices.ContainsFunc(a.candidates, func(c selection.Candidate) bool { return a.running[c.ID] > 0 && may(c) })
}

// Candidates returns the instances of a list with the steps that they have in flight.
func (q *Queue) Candidates(agent string, list *instances.List) []selection.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(agent)
	a.setList(list)
	return slices.Clone(a.candidates)
}

// Join puts a step into the line of its agent, unless it is in the line already.
func (q *Queue) Join(agent string, w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.agent(agent).join(w)
}

// Leave removes a step from the line of its agent, if it is in the line.
func (q *Queue) Leave(agent string, w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.agent(agent).leave(w)
}

// MustPoll reports whether a step looks for a slot periodically, and not only when it is woken:
// instances may have slots that this orchestrator does not know of. One step polls for all that
// look for the same.
func (q *Queue) MustPoll(agent string, w *Waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.order.Selective {
		return true
	}
	waiting := q.agent(agent).waiting
	first := slices.IndexFunc(waiting, func(other *Waiter) bool { return !other.order.Selective })
	return first < 0 || waiting[first] == w
}
