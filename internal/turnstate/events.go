package turnstate

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxViolations bounds the ownership violations kept between two events: an agent may try in a loop.
const maxViolations = 16

// Numbers counts the events of an invocation. Safe for concurrent use.
type Numbers struct{ last atomic.Int64 }

func (n *Numbers) next() int { return int(n.last.Add(1)) }

// Origin says where the events of a turn come from.
type Origin struct {
	TurnID string
	Step   int
	Agent  string
	Branch string
}

// Events emits the events of a turn and keeps those that become entries of the trace. The goroutine of the turn
// alone uses it; only RejectWrite is safe for concurrent use.
type Events struct {
	origin     Origin
	numbers    *Numbers
	emit       func(event.Event) error // nil when no consumer is set
	err        error                   // first error of the consumer (nil while it reads)
	delivering bool                    // the consumer has an event: a panic is its own
	entries    []event.Event

	mu         sync.Mutex // tools run concurrently
	violations []event.OwnershipViolation
}

// NewEvents returns the events of a turn. Nil numbers count from 1, a nil emit only collects entries.
func NewEvents(origin Origin, numbers *Numbers, emit func(event.Event) error) *Events {
	if numbers == nil {
		numbers = &Numbers{}
	}
	return &Events{origin: origin, numbers: numbers, emit: emit}
}

// Listen replaces the consumer and returns the one before.
func (e *Events) Listen(emit func(event.Event) error) (before func(event.Event) error) {
	before, e.emit = e.emit, emit
	return before
}

// Emit emits an event of the turn itself. Every call after a failed one returns the same error and emits nothing.
func (e *Events) Emit(p event.Payload) error { return e.Forward(event.Event{Payload: p}) }

// Forward emits an event that another agent may have made, and fills in its missing sequence, time and author
// (AD-9). It fails as Emit does.
func (e *Events) Forward(ev event.Event) error {
	if e.err == nil {
		e.err = e.deliver(ev)
	}
	return e.err
}

// Err returns the error of the consumer, or nil while it reads.
func (e *Events) Err() error { return e.err }

// Delivering reports whether the consumer has an event right now.
func (e *Events) Delivering() bool { return e.delivering }

// Entries returns the events of the turn so far, without transient events such as text deltas (CO-46).
func (e *Events) Entries() []event.Event { return slices.Clip(e.entries) }

func (e *Events) deliver(ev event.Event) error {
	for _, v := range e.takeViolations() { // they happened before this event
		if err := e.deliver(event.Event{Payload: v}); err != nil {
			return err
		}
	}
	if ev.Sequence == 0 {
		ev.Invocation, ev.Step, ev.Sequence = e.origin.TurnID, e.origin.Step, e.numbers.next()
	}
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	if ev.Author == "" {
		ev.Author, ev.Branch = e.origin.Agent, e.origin.Branch
	}
	if !event.IsTransient(ev.Payload) {
		e.entries = append(e.entries, ev)
	}
	if e.emit == nil {
		return nil
	}
	e.delivering = true
	err := e.emit(ev)
	e.delivering = false
	return err
}

// RejectWrite records a rejected write to state of another owner. It is emitted before the next event, even if the
// writer ignores the error (SO-6). Safe for concurrent use.
func (e *Events) RejectWrite(err *failure.Error) {
	v, ok := event.ViolationOf(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok && len(e.violations) < maxViolations {
		e.violations = append(e.violations, v)
	}
}

func (e *Events) takeViolations() []event.OwnershipViolation {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.violations
	e.violations = nil
	return all
}
