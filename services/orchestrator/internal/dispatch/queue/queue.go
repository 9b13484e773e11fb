// Package queue holds the steps that wait for an instance, in one wait list per agent. It also counts the steps
// that each instance has. A step waits here for a free slot, so it does not have to ask instances repeatedly.
package queue

import (
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Queue counts the steps that this orchestrator has at each instance, and orders the steps that wait for a slot.
// The instance itself makes the final decision, because other orchestrators may use it, too. Safe for concurrent
// use.
type Queue struct {
	decide func(selection.Input) selection.Decision

	mu     sync.Mutex
	agents map[string]*agentSlots
}

// agentSlots is the wait list of one agent and the slot counts of its instances.
type agentSlots struct {
	waitList
	instanceList   *instances.List
	candidates     []selection.Candidate // instances of the list with their steps in flight
	candidateIndex map[string]int        // index in candidates, by instance id
	inFlight       map[string]int32      // number of reserved slots by instance id, including instances that are gone
	running        map[string]int32      // number of steps in inFlight that have begun, by instance id
	counters       map[selection.Strategy]uint64
}

// New returns an empty queue. decide selects the instance that gets a step.
func New(decide func(selection.Input) selection.Decision) *Queue {
	return &Queue{decide: decide, agents: map[string]*agentSlots{}}
}

// getAgent returns the slots of an agent, and creates them if needed. The caller holds the lock.
func (q *Queue) getAgent(name string) *agentSlots {
	a, ok := q.agents[name]
	if !ok {
		a = &agentSlots{inFlight: map[string]int32{}, running: map[string]int32{}, counters: map[selection.Strategy]uint64{}}
		q.agents[name] = a
	}
	return a
}

// setList replaces the candidates by the instances of the list. It does nothing if the list is unchanged.
func (a *agentSlots) setList(list *instances.List) {
	if a.instanceList == list {
		return
	}
	a.version++ // the instance cache wakes the waiting steps
	a.instanceList, a.candidates, a.candidateIndex = list, slices.Clone(list.Candidates), make(map[string]int, len(list.Candidates))
	for i := range a.candidates {
		c := &a.candidates[i]
		a.candidateIndex[c.ID], c.InFlight = i, a.inFlight[c.ID]
	}
}

func (a *agentSlots) addInFlight(id string, n int32) {
	if a.inFlight[id] += n; a.inFlight[id] == 0 {
		delete(a.inFlight, id)
	}
	if i, ok := a.candidateIndex[id]; ok {
		a.candidates[i].InFlight += n
	}
}

// NextCounter returns how many steps of the agent this strategy has routed before, and counts one more.
func (q *Queue) NextCounter(agent string, strategy selection.Strategy) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.getAgent(agent)
	n := a.counters[strategy]
	a.counters[strategy]++
	return n
}

// TakeSlot selects an instance from the list for a step and reserves a slot there. The caller releases the slot
// once. It fills in the candidates with their steps in flight. All of this happens under one lock, so that
// simultaneous steps are spread. It returns false when no instance has a slot, or when other steps come first. A
// step that gets a slot leaves the wait list.
func (q *Queue) TakeSlot(agent string, list *instances.List, in selection.Input, w *Waiter) (registry.Instance, selection.Decision, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.getAgent(agent)
	a.setList(list)
	if !a.mayTry(w) {
		return registry.Instance{}, selection.DecideToWait(), false
	}
	in.Candidates, in.Sizes, in.Withheld = a.candidates, list.Sizes, list.Withheld
	d := q.decide(in)
	i, ok := a.candidateIndex[d.Target]
	a.recordTry(w, ok)
	if !ok {
		return registry.Instance{}, d, false
	}
	a.addInFlight(d.Target, 1)
	return list.Instances[i], d, true
}

// ReleaseSlot returns a slot. If the slot was not used, because the instance rejected the step, no other step is
// woken: it would be rejected as well.
func (q *Queue) ReleaseSlot(in registry.Instance, used bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.getAgent(in.Agent)
	a.addInFlight(in.ID, -1)
	if used {
		a.notifyFreeSlot()
	}
}

// RecordStepBegan records that an instance began a step.
func (q *Queue) RecordStepBegan(in registry.Instance) { q.addRunning(in, 1) }

// RecordStepEnded records that a step that RecordStepBegan counted has ended.
func (q *Queue) RecordStepEnded(in registry.Instance) { q.addRunning(in, -1) }

func (q *Queue) addRunning(in registry.Instance, n int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.getAgent(in.Agent)
	if a.running[in.ID] += n; a.running[in.ID] == 0 {
		delete(a.running, in.ID)
	}
}

// HasRunningStep reports whether a step of this orchestrator runs at an instance for which may returns true. If
// so, a slot becomes free when that step ends.
func (q *Queue) HasRunningStep(agent string, list *instances.List, may func(selection.Candidate) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.getAgent(agent)
	a.setList(list)
	return slices.ContainsFunc(a.candidates, func(c selection.Candidate) bool { return a.running[c.ID] > 0 && may(c) })
}

// Candidates returns the instances of a list with their numbers of steps in flight.
func (q *Queue) Candidates(agent string, list *instances.List) []selection.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.getAgent(agent)
	a.setList(list)
	return slices.Clone(a.candidates)
}

// Join adds a step to the wait list of its agent, unless it is already there.
func (q *Queue) Join(agent string, w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.getAgent(agent).insert(w)
}

// Leave removes a step from the wait list of its agent, if it is there.
func (q *Queue) Leave(agent string, w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.getAgent(agent).remove(w)
}

// ShouldPoll reports whether a step should try to get a slot periodically, and not only when it is woken. Instances may have
// free slots that this orchestrator does not know of. Of all steps that can use the same slots, only one polls.
func (q *Queue) ShouldPoll(agent string, w *Waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.order.IsSelective {
		return true
	}
	waiting := q.getAgent(agent).waiting
	first := slices.IndexFunc(waiting, func(other *Waiter) bool { return !other.order.IsSelective })
	return first < 0 || waiting[first] == w
}
