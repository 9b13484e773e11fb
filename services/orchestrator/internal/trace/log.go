package trace

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Log is the event log of one trace, kept by the replica that drives the trace. It is safe for concurrent use, but
// callers must append no event after the last one.
type Log struct {
	traces *Traces
	claim  Claim  // the claim given to Open, without events; immutable
	root   string // root trace of the run; immutable once the log is open

	mu        sync.Mutex
	turnEpoch int64 // epoch under which the turn is driven
	history   history
	writer    writer
	ended     bool          // whether the last event was appended
	changed   chan struct{} // closed and replaced at each change
}

func newLog(t *Traces, c Claim) *Log {
	l := &Log{
		traces: t, claim: c, root: c.Record.GetRootTraceId(), turnEpoch: c.Turn.TurnEpoch, changed: make(chan struct{}),
	}
	l.writer = writer{log: l, term: t.currentTerm(), rejected: make(chan struct{})}
	return l
}

// takeOver claims the trace from another owner and reads its stored events. It runs before any event is appended.
func (l *Log) takeOver(ctx context.Context) error {
	h := &l.history
	last, err := retry.Do(ctx, func(ctx context.Context) (last uint64, err error) {
		l.writer.ownerEpoch, last, err = l.traces.store.Claim(ctx, l.claim)
		return last, err
	})
	if err != nil {
		return err
	}
	for h.sequence < last {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]*troupev1.Event, error) {
			return l.traces.store.Events(ctx, l.Ref(), h.sequence, pageSize)
		})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return eventsExpiredError(l.Ref())
		}
		h.addStored(page)
	}
	h.earlierEpochCount = len(h.events)
	if len(h.events) > 0 { // the root in a repeated request is not trusted
		l.root = cmp.Or(h.events[0].GetRootTraceId(), l.Ref().Trace)
	}
	return nil
}

// Ref names the trace.
func (l *Log) Ref() Ref { return l.claim.Ref() }

// Root returns the root trace of the run, as the first owner of this trace stored it (contract OC-10).
func (l *Log) Root() string { return l.root }

// Events returns a copy of the list of events so far, in the order in which they happened.
func (l *Log) Events() []*troupev1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.history.events)
}

// Length returns how many durable events the log has, stored or not.
func (l *Log) Length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.history.sequence)
}

// IsEmpty reports whether no event was appended yet, by this owner or an earlier one.
func (l *Log) IsEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.history.sequence == 0
}

// Stage returns the stage of the last event (INITIALIZE when there is none).
func (l *Log) Stage() troupev1.Stage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.history.events) == 0 {
		return troupev1.Stage_STAGE_INITIALIZE
	}
	return l.history.events[len(l.history.events)-1].GetStage()
}

// PublishedSteps returns what the log has published about the steps so far.
func (l *Log) PublishedSteps() PublishedSteps {
	l.mu.Lock()
	defer l.mu.Unlock()
	return readPublishedSteps(l.history.events)
}

// StepSummary returns the summary of the steps so far, as SummarizeSteps computes it.
func (l *Log) StepSummary() StepSummary {
	l.mu.Lock()
	defer l.mu.Unlock()
	return SummarizeSteps(l.history.events)
}

// Metrics returns the metrics of the turn so far, as MetricsFromEvents computes them.
func (l *Log) Metrics(total time.Duration) *troupev1.TurnMetrics {
	l.mu.Lock()
	defer l.mu.Unlock()
	return MetricsFromEvents(l.history.events, total)
}

// SetTurnEpoch sets the epoch under which the turn is driven from now on. The next write stores the epoch together
// with its events.
func (l *Log) SetTurnEpoch(turnEpoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turnEpoch, l.history.earlierEpochCount = turnEpoch, len(l.history.events)
}

// Rejected returns a channel that is closed when no more events can be stored. That happens when another owner has
// the trace, or when the ctx of the writes has ended.
func (l *Log) Rejected() <-chan struct{} { return l.writer.rejected }

// Append adds an event. A durable event gets the next sequence, and an ephemeral one gets 0. Append does not wait
// for the store; ctx bounds the write. It fails with resource_quota at MaxEvents and MaxBytes.
func (l *Log) Append(ctx context.Context, e *troupev1.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := &l.history; h.isFull() {
		return failure.Newf(failure.ResourceQuota, "trace.Append",
			"the turn has %d events of %d bytes; a trace may have %d events and %d bytes", h.sequence, h.durableBytes, MaxEvents, MaxBytes)
	}
	l.add(ctx, e)
	return nil
}

// add sets the time of an event, adds it to the history, and starts the writer if the event must be stored. The
// caller holds the lock.
func (l *Log) add(ctx context.Context, e *troupev1.Event) {
	e.TraceId, e.SessionId, e.Turn, e.RootTraceId = l.Ref().Trace, l.claim.Record.GetSessionId(), l.claim.Record.GetTurn(), l.root
	h := &l.history
	switch {
	case !h.add(e):
	case e.GetSequence() > 0:
		l.writer.start(ctx)
	case h.visibleCount == len(h.events)-1 && l.writer.term == l.traces.currentTerm():
		h.visibleCount++ // no earlier event is pending, and this replica still owns the trace
		l.notify()
	}
}

// AwaitStored waits until all appended durable events are stored. It fails with the cause of ctx when ctx ends
// first, and with trace_orphaned when the store takes no more events. A turn calls it where the events are the
// only record of its work.
func (l *Log) AwaitStored(ctx context.Context) error {
	for {
		l.mu.Lock()
		left, _ := l.pendingEvents()
		changed, rejected := l.changed, l.writer.err != nil
		l.mu.Unlock()
		switch {
		case rejected:
			return orphanedError(l.Ref())
		case len(left) == 0:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish adds the last event, and waits until all events are stored or ctx ends.
func (l *Log) finish(ctx context.Context, last *troupev1.Event) error {
	l.mu.Lock()
	l.add(ctx, last)
	l.ended = true
	l.mu.Unlock()
	l.writer.awaitIdle(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writer.err
}

// abandon waits for a write in progress, or until ctx ends. After that the log stores no more events.
func (l *Log) abandon(ctx context.Context) {
	l.writer.awaitIdle(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer.err == nil {
		l.writer.fail(errAbandoned)
	}
	l.notify()
}

// notify wakes the watchers. The caller holds the lock.
func (l *Log) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// rejectedError returns trace_orphaned when no more events can be stored (nil while they can).
func (l *Log) rejectedError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer.err == nil {
		return nil
	}
	return orphanedError(l.Ref())
}

// pendingEvents returns the durable events that are not stored yet, and how many events become visible once they
// are. After a failed write no further events become visible. The caller holds the lock.
func (l *Log) pendingEvents() (batch []*troupev1.Event, upto int) {
	if l.writer.err != nil {
		return nil, l.history.visibleCount
	}
	return l.history.pendingEvents()
}
