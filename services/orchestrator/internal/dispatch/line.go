package dispatch

import (
	"slices"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// waiter is a step that has no place yet, in the line of its agent. Steps of turns that have
// begun come before first steps, so that what was begun ends; among each, those of turns with a
// higher priority (contract OC-28), and then those that came first. While there are always steps
// of a higher priority, the others wait; the timeout of their turn bounds it.
//
// One after the other looks for a place: when one becomes free the first in the line is told,
// and it tells the next when there may be more. The channel belongs to the step; all else is
// guarded by the lock of slots.
type waiter struct {
	late     bool          // not the first attempt of the first step of its turn
	picky    bool          // a place that others could take may be none for it, and the other way round
	priority int           // of its turn
	again    chan struct{} // of 1: there may be a place

	number  uint64 // of arrival; 0: it was never in the line
	looked  uint64 // what the table was when it looked last
	blocked bool   // it wanted to look while one before it had not looked
}

func newWaiter(late, picky bool) *waiter {
	return &waiter{late: late, picky: picky, again: make(chan struct{}, 1)}
}

func (w *waiter) before(other *waiter) bool {
	if w.late != other.late {
		return w.late
	}
	if w.priority != other.priority {
		return w.priority > other.priority
	}
	return w.number < other.number
}

func (w *waiter) wake() {
	select {
	case w.again <- struct{}{}:
	default: // it knows already
	}
}

// line are those who wait for one agent. It is guarded by the lock of slots.
type line struct {
	waiting []*waiter // in order
	arrived uint64
	version uint64 // of what there is to be had
}

// join puts a step in its place. It may be there already.
func (l *line) join(w *waiter) {
	if slices.Contains(l.waiting, w) {
		return
	}
	if w.number == 0 {
		l.arrived++
		w.number = l.arrived
	}
	i := slices.IndexFunc(l.waiting, w.before)
	if i < 0 {
		i = len(l.waiting)
	}
	l.waiting = slices.Insert(l.waiting, i, w)
}

// leave takes a step out. What it was told is told to the next.
func (l *line) leave(w *waiter) {
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.tell(func(*waiter) bool { return true })
	}
}

// freed says that there is more to be had.
func (l *line) freed() {
	l.version++
	l.tell(func(*waiter) bool { return true })
}

// tell wakes the first that has not looked since the last change, of some.
func (l *line) tell(of func(*waiter) bool) {
	for _, w := range l.waiting {
		if w.looked < l.version && of(w) {
			w.wake()
			return
		}
	}
}

// mayLook reports whether nobody before a step has still to look.
func (l *line) mayLook(w *waiter) bool {
	for _, other := range l.waiting {
		if other == w {
			break
		}
		if other.looked < l.version && other.before(w) {
			w.blocked = true
			return false
		}
	}
	w.looked, w.blocked = l.version, false
	return true
}

// hasLooked says what a step found, and tells whom that concerns.
func (l *line) hasLooked(w *waiter, found bool) {
	if found {
		l.leave(w)
		return
	}
	// Where it found nothing there is nothing for others that look for the same.
	l.tell(func(other *waiter) bool { return w.picky || other.picky || other.blocked })
}

// asks reports whether a step looks again and again, and not only when it is told: instances
// may have places that this orchestrator does not know of. One does so for all of a kind.
func (s *slots) asks(agent string, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.picky {
		return true
	}
	waiting := s.of(agent).waiting
	first := slices.IndexFunc(waiting, func(other *waiter) bool { return !other.picky })
	return first < 0 || waiting[first] == w
}

// join puts a step into the line of its agent, and leave takes it out, if it is there.
func (s *slots) join(agent string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(agent).join(w)
}

func (s *slots) leave(agent string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(agent).leave(w)
}

// working reports whether a step of this orchestrator runs at one of those that may have the
// next: then there will be a place, however long it takes.
func (s *slots) working(agent string, list *instances.List, may func(selection.Candidate) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(agent)
	t.follow(list)
	return slices.ContainsFunc(t.candidates, func(c selection.Candidate) bool { return t.working[c.ID] > 0 && may(c) })
}
