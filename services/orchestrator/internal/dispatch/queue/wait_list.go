package queue

import "slices"

// Order defines the position of a step in the wait list of its agent. Steps of turns that have begun come before
// first steps, so that begun turns can end. Within each group, a higher priority of the turn comes first (contract
// OC-28), then an earlier arrival. Steps of low priority wait as long as steps of higher priority arrive. The
// timeout of their turn bounds this wait.
type Order struct {
	HasBegun bool // true except for the first attempt of a turn's first step
	Priority int  // priority of its turn
	// IsSelective is true for a step that may not use every free slot.
	IsSelective bool
}

// Waiter is a step that waits for a slot. The steps of a wait list try one after the other: a free slot wakes the
// first step. That step wakes the next one if there may be more slots.
type Waiter struct {
	order    Order
	wakeChan chan struct{} // has capacity 1; a value means that a slot may be free

	// The lock of the queue guards the fields below.
	arrival          uint64 // number of its arrival in the list, from 1 (0 before that)
	lastTriedVersion uint64 // version of the list at its last try
	wasBlocked       bool   // it tried before an earlier step had tried
}

// NewWaiter returns a waiter that is not in any wait list.
func NewWaiter(order Order) *Waiter { return &Waiter{order: order, wakeChan: make(chan struct{}, 1)} }

// WakeChan returns a channel that receives a value when the step should try to get a slot.
func (w *Waiter) WakeChan() <-chan struct{} { return w.wakeChan }

// Wake sends a value to WakeChan. It does nothing if a value is already pending.
func (w *Waiter) Wake() {
	select {
	case w.wakeChan <- struct{}{}:
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

// waitList holds the steps that wait for one agent, in order. The lock of the queue guards it.
type waitList struct {
	waiting      []*Waiter // in order
	arrivalCount uint64
	version      uint64 // incremented when more slots may be free
}

// insert inserts a step at its position, unless it is already in the list.
func (l *waitList) insert(w *Waiter) {
	if slices.Contains(l.waiting, w) {
		return
	}
	if w.arrival == 0 {
		l.arrivalCount++
		w.arrival = l.arrivalCount
	}
	i := slices.IndexFunc(l.waiting, w.comesBefore)
	if i < 0 {
		i = len(l.waiting)
	}
	l.waiting = slices.Insert(l.waiting, i, w)
}

// remove removes a step and passes its wake-up on to the next step.
func (l *waitList) remove(w *Waiter) {
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.wakeFirst(func(*Waiter) bool { return true })
	}
}

// notifyFreeSlot records that a slot may be free, and wakes the first step that has not tried since.
func (l *waitList) notifyFreeSlot() {
	l.version++
	l.wakeFirst(func(*Waiter) bool { return true })
}

// wakeFirst wakes the first eligible step that has not tried since the last change.
func (l *waitList) wakeFirst(eligible func(*Waiter) bool) {
	for _, w := range l.waiting {
		if w.lastTriedVersion < l.version && eligible(w) {
			w.Wake()
			return
		}
	}
}

// mayTry reports whether w may try now: every step before it in the list has tried since the last change of the slots.
// It also records the try, or that w was blocked.
func (l *waitList) mayTry(w *Waiter) bool {
	for _, other := range l.waiting {
		if other == w {
			break
		}
		if other.lastTriedVersion < l.version && other.comesBefore(w) {
			w.wasBlocked = true
			return false
		}
	}
	w.lastTriedVersion, w.wasBlocked = l.version, false
	return true
}

// recordTry records whether a step found a slot, and wakes the next step that may find one. If w found no slot,
// steps that can use the same instances stay asleep.
func (l *waitList) recordTry(w *Waiter, found bool) {
	if found {
		l.remove(w)
		return
	}
	l.wakeFirst(func(other *Waiter) bool { return w.order.IsSelective || other.order.IsSelective || other.wasBlocked })
}
