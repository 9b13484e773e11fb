package queue

import "slices"

// Order says where a step waits in the line of its agent. Steps of turns that have begun come before first
// steps, so that turns end. Within each group, steps of turns with a higher priority come first (contract
// OC-28), and then steps that arrived earlier. While steps of a higher priority keep arriving, the others wait.
// The timeout of their turn bounds that.
type Order struct {
	HasBegun bool // not the first attempt of the first step of its turn
	Priority int  // of its turn
	// Selective steps may not use every slot that others can use.
	Selective bool
}

// Waiter is a step that has no slot yet. The steps of a line look for a slot one after the other:
// a free slot wakes the first step, which wakes the next one when there may be more.
type Waiter struct {
	order Order
	woken chan struct{} // of 1: there may be a slot

	// The lock of the queue guards the fields below.
	arrival  uint64 // 1 for the first step of the line (0: it was never there)
	lastLook uint64 // version of the line when it looked last
	blocked  bool   // it wanted to look before an earlier step had looked
}

// NewWaiter returns a waiter that is in no line.
func NewWaiter(order Order) *Waiter { return &Waiter{order: order, woken: make(chan struct{}, 1)} }

// Woken delivers a value when the step should look for a slot.
func (w *Waiter) Woken() <-chan struct{} { return w.woken }

// Wake makes Woken deliver a value. Several calls before it is received deliver one.
func (w *Waiter) Wake() {
	select {
	case w.woken <- struct{}{}:
	default: // a wake-up is pending
	}
}

func (w *Waiter) comesBefore(other *Waiter) bool {
	if w.order.HasBegun != other.order.HasBegun {
		return w.order.HasBegun
	}
	if w.order.Priority != other.order.Priority {
		return w.order.Priority > other.order.Priority
	}
	return w.arrival < other.arrival
}

// line is the steps that wait for one agent. The lock of the queue guards it.
type line struct {
	waiting  []*Waiter // in order
	arrivals uint64
	version  uint64 // grows when there may be more slots
}

// join inserts a step at its position, unless it is in the line already.
func (l *line) join(w *Waiter) {
	if slices.Contains(l.waiting, w) {
		return
	}
	if w.arrival == 0 {
		l.arrivals++
		w.arrival = l.arrivals
	}
	i := slices.IndexFunc(l.waiting, w.comesBefore)
	if i < 0 {
		i = len(l.waiting)
	}
	l.waiting = slices.Insert(l.waiting, i, w)
}

// leave removes a step, and passes its wake-up to the next one.
func (l *line) leave(w *Waiter) {
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.wakeFirst(func(*Waiter) bool { return true })
	}
}

// addSlot records that there are more free slots, and wakes the first eligible step.
func (l *line) addSlot() {
	l.version++
	l.wakeFirst(func(*Waiter) bool { return true })
}

// wakeFirst wakes the first eligible step that has not looked since the last change.
func (l *line) wakeFirst(eligible func(*Waiter) bool) {
	for _, w := range l.waiting {
		if w.lastLook < l.version && eligible(w) {
			w.Wake()
			return
		}
	}
}

// mayLook reports whether all steps before w have looked since the last change.
func (l *line) mayLook(w *Waiter) bool {
	for _, other := range l.waiting {
		if other == w {
			break
		}
		if other.lastLook < l.version && other.comesBefore(w) {
			w.blocked = true
			return false
		}
	}
	w.lastLook, w.blocked = l.version, false
	return true
}

// recordLook records whether a step found a slot, and wakes the next step that may find one. When w found none,
// steps that may use the same instances are not woken.
func (l *line) recordLook(w *Waiter, found bool) {
	if found {
		l.leave(w)
		return
	}
	l.wakeFirst(func(other *Waiter) bool { return w.order.Selective || other.order.Selective || other.blocked })
}
