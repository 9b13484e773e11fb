package turnstate

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/internal/customevent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxViolations bounds the ownership violations kept between two events, because an agent may cause them in a
// loop.
const maxViolations = 16

// Numbers numbers the events of an invocation, and bounds those of kinds that the agent defines. It is safe for
// concurrent use.
type Numbers struct {
	last   atomic.Int64
	custom customevent.Counter
}

func (n *Numbers) next() int { return int(n.last.Add(1)) }

// Origin identifies the turn, step, agent and branch that emit the events.
type Origin struct {
	TurnID string
	Step   int
	Agent  string
	Branch string
}

// Events emits the events of a turn and keeps the ones that become entries of the trace. Only the goroutine of the
// turn may use it, except for AddViolation and AddArtifactUpdate, which are safe for concurrent use.
type Events struct {
	origin       Origin
	numbers      *Numbers
	emit         func(event.Event) error // nil when no consumer is set
	err          error                   // first error of the consumer (nil while it reads)
	isDelivering bool                    // whether the consumer is handling an event; a panic is then the consumer's
	entries      []event.Event
	interceptor  interceptor

	mu         sync.Mutex // tools run concurrently
	violations []event.OwnershipViolation
	updates    []event.ArtifactUpdate
	added      chan struct{} // signals the goroutine of the turn that there are updates
}

// NewEvents returns an Events for a turn. If numbers is nil, the events are numbered from 1. If emit is nil, the
// events are only kept.
func NewEvents(origin Origin, numbers *Numbers, emit func(event.Event) error) *Events {
	if numbers == nil {
		numbers = &Numbers{}
	}
	return &Events{origin: origin, numbers: numbers, emit: emit, added: make(chan struct{}, 1)}
}

// SetConsumer replaces the consumer and returns the previous one.
func (e *Events) SetConsumer(emit func(event.Event) error) (before func(event.Event) error) {
	before, e.emit = e.emit, emit
	return before
}

// Emit emits an event of this turn. After the consumer has returned an error, every call returns that error and
// emits nothing.
func (e *Events) Emit(p event.Payload) error { return e.Forward(event.Event{Payload: p}) }

// EmitCustom emits an event of a kind that the agent defines, with data as JSON (nil for none). It fails like Forward.
func (e *Events) EmitCustom(name string, data any) error {
	custom, err := customevent.New(name, data)
	if err != nil {
		return err
	}
	return e.Emit(custom)
}

// Forward emits an event that another agent may have created, and fills in its sequence, time and author if they
// are missing (AD-9). It fails like Emit. It rejects a custom event that is invalid or exceeds the limits of the step.
func (e *Events) Forward(ev event.Event) error {
	if custom, ok := ev.Payload.(event.Custom); ok && ev.Sequence == 0 && e.err == nil {
		if err := e.numbers.custom.Admit(custom); err != nil {
			return err // the consumer continues
		}
	}
	if e.err == nil {
		e.err = e.deliver(ev)
	}
	return e.err
}

// Err returns the first error of the consumer, or nil.
func (e *Events) Err() error { return e.err }

// IsDelivering reports whether the consumer is handling an event right now.
func (e *Events) IsDelivering() bool { return e.isDelivering }

// Entries returns the events of the turn so far, except transient ones such as text deltas (CO-46).
func (e *Events) Entries() []event.Event { return slices.Clip(e.entries) }

// deliver emits an event, after the ownership violations before it and before the events that its interceptor emits.
func (e *Events) deliver(ev event.Event) error {
	if e.interceptor.isRunning {
		e.interceptor.held = append(e.interceptor.held, ev)
		return nil
	}
	if err := e.deliverAdded(); err != nil { // they come before this event
		return err
	}
	ev = e.complete(ev)
	held, failed := e.interceptor.intercept(&ev)
	if failed == nil {
		if err := e.consume(ev); err != nil {
			return err
		}
	}
	for _, h := range held {
		if err := e.consume(e.complete(h)); err != nil {
			return err
		}
	}
	return failed
}

// complete fills in the sequence, the time and the author of an event if they are missing.
func (e *Events) complete(ev event.Event) event.Event {
	if ev.Sequence == 0 {
		ev.Invocation, ev.Step, ev.Sequence = e.origin.TurnID, e.origin.Step, e.numbers.next()
	}
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	if ev.Author == "" {
		ev.Author, ev.Branch = e.origin.Agent, e.origin.Branch
	}
	return ev
}

// consume keeps an event for the trace and passes it to the consumer.
func (e *Events) consume(ev event.Event) error {
	if !event.IsTransient(ev.Payload) {
		e.entries = append(e.entries, ev)
	}
	if e.emit == nil {
		return nil
	}
	e.isDelivering = true
	err := e.emit(ev)
	e.isDelivering = false
	return err
}

// AddViolation records a rejected write to state of another owner. The violation is emitted before the next event,
// even if the writer ignores the error (SO-6). It is safe for concurrent use.
func (e *Events) AddViolation(err *failure.Error) {
	v, ok := event.ViolationFromError(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok && len(e.violations) < maxViolations {
		e.violations = append(e.violations, v)
	}
}

// AddArtifactUpdate adds an update of an artifact, which is emitted before the next event, or when EmitAdded is called. It
// is safe for concurrent use.
func (e *Events) AddArtifactUpdate(u event.ArtifactUpdate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.updates = append(e.updates, u)
	select {
	case e.added <- struct{}{}:
	default: // a signal is pending
	}
}

// Added returns the channel that signals that EmitAdded has something to emit.
func (e *Events) Added() <-chan struct{} { return e.added }

// EmitAdded emits the updates that were added. It fails like Emit.
func (e *Events) EmitAdded() error {
	if e.err == nil {
		e.err = e.deliverAdded()
	}
	return e.err
}

func (e *Events) deliverAdded() error {
	e.mu.Lock()
	violations, updates := e.violations, e.updates
	e.violations, e.updates = nil, nil
	e.mu.Unlock()
	for _, v := range violations {
		if err := e.deliver(event.Event{Payload: v}); err != nil {
			return err
		}
	}
	for _, u := range updates {
		if err := e.deliver(event.Event{Payload: u}); err != nil {
			return err
		}
	}
	return nil
}
