package trace

import (
	"context"
	"iter"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// pageSize is how many stored events are read at once.
const pageSize = 256

// Bounds of the time between two reads of a trace that another replica drives. The time grows while no new events
// arrive.
const (
	minPoll = 50 * time.Millisecond
	maxPoll = 800 * time.Millisecond
)

// endingTime is how long after its timeout a trace may still end before watchers give up. Its owner may need the
// time to close the turn, or another owner to take over and close it.
const endingTime = 45 * time.Second

// Watch yields the events of a trace after the given sequence, without a gap, up to the turn result. It first
// yields past events and then new ones. It works for a trace of any replica, also when the owner changes. Only a
// trace that this replica drives has text deltas. For any other trace, the whole text of a finished step is
// yielded as one delta before the end of the step. That requires that the watch saw the step start and that the
// trace was open when the watch began. Otherwise only the result of the step has the text.
//
// The last item may be an error: not_found, user_invalid_input when after lies beyond the end of the trace, or
// trace_orphaned when no owner has ended it in time.
func (t *Traces) Watch(ctx context.Context, ref Ref, after uint64) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		w := &watch{traces: t, ref: ref, after: after, yield: yield, runningSteps: map[int32]bool{}}
		if err := w.run(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// watch is the state of one call of Watch.
type watch struct {
	traces *Traces
	ref    Ref
	yield  func(*troupev1.Event, error) bool

	after        uint64         // sequence of the last event
	wasLive      bool           // the trace had not ended when the watch began
	runningSteps map[int32]bool // steps that the watch saw start but not end; several when a fork runs
	done         bool           // the consumer has stopped, or the trace has no more events
}

// run reads from the log of this replica or from the store, and switches when the trace moves between replicas.
func (w *watch) run(ctx context.Context) error {
	for {
		l := w.traces.findLog(w.ref)
		if l == nil {
			if err := w.followStore(ctx); err != nil || w.done {
				return err
			}
			continue // this replica drives the trace now
		}
		w.wasLive = true
		err := w.followLog(ctx, l)
		if w.done || err != nil && !failure.Is(err, failure.TraceOrphaned) {
			return err
		}
		clear(w.runningSteps) // their text may have been shown
		if w.traces.findLog(w.ref) == l {
			w.traces.removeLog(l) // the store rejected its events; the turn will find out
		}
	}
}

// followLog yields the events of this replica's log, until the log ends or another replica owns the trace.
func (w *watch) followLog(ctx context.Context, l *Log) error {
	for e, err := range l.Watch(ctx, w.after) {
		if err != nil {
			return err
		}
		if !w.yieldEvent(e) {
			return nil
		}
	}
	w.done = true
	return nil
}

func (w *watch) yieldEvent(e *troupev1.Event) bool {
	w.after = max(w.after, e.GetSequence())
	w.done = !w.yield(e, nil) || e.GetTurnResult() != nil
	return !w.done
}

// followStore yields the events that another replica stores, until the trace ends or this replica drives it.
func (w *watch) followStore(ctx context.Context) error {
	running, err := w.traces.store.Load(ctx, w.ref)
	if err == nil {
		err = checkRange(w.after, running.Record.GetLastSequence())
	}
	if err != nil {
		return err
	}
	ended := running.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED
	if ended && w.after == running.Record.GetLastSequence() {
		w.done = true
		return nil
	}
	w.wasLive = w.wasLive || !ended
	deadline := time.Now().Add(running.TimeLeft + endingTime)
	var pause time.Duration
	for {
		n, wanted, err := w.yieldStoredPage(ctx)
		if err != nil || !wanted {
			return err
		}
		switch {
		case n == pageSize:
			continue
		case ended:
			return eventsExpiredError(w.ref)
		case running.Turn == TurnInfo{}: // its owner holds no lease
			return orphanedError(w.ref)
		case time.Now().After(deadline):
			return w.checkOverdue(ctx)
		}
		pause = nextPoll(pause, n)
		if err := retry.Sleep(ctx, pause); err != nil || w.traces.findLog(w.ref) != nil {
			return err
		}
	}
}

// nextPoll returns how long to wait after a poll of the store that found n events. last is the wait before that poll
// (zero for the first).
func nextPoll(last time.Duration, n int) time.Duration {
	if n > 0 {
		return minPoll
	}
	return min(max(2*last, minPoll), maxPoll)
}

// yieldStoredPage yields the next page of stored events. It returns their number, and whether the reader wants more.
func (w *watch) yieldStoredPage(ctx context.Context) (n int, wanted bool, err error) {
	page, err := w.traces.store.Events(ctx, w.ref, w.after, pageSize)
	if err != nil {
		return 0, false, err
	}
	for _, e := range page {
		if !w.yieldStoredEvent(e) {
			return 0, false, nil
		}
	}
	return len(page), true, nil
}

// yieldStoredEvent yields a stored event. Before the end of a step it yields the text of the step, because deltas
// are not stored.
func (w *watch) yieldStoredEvent(e *troupev1.Event) bool {
	switch {
	case e.GetStepStarted() != nil, e.GetTextRetracted() != nil:
		w.runningSteps[e.GetStep()] = true
	case e.GetStepFinished() != nil:
		text := e.GetStepFinished().GetResult().GetText()
		if w.runningSteps[e.GetStep()] && text != "" && w.wasLive && !w.yieldEvent(wholeTextDelta(e, text)) {
			return false
		}
		delete(w.runningSteps, e.GetStep())
	}
	return w.yieldEvent(e)
}

// wholeTextDelta returns the text of a finished step as one delta.
func wholeTextDelta(end *troupev1.Event, text string) *troupev1.Event {
	return &troupev1.Event{
		TraceId: end.GetTraceId(), SessionId: end.GetSessionId(), Turn: end.GetTurn(), Step: end.GetStep(), Attempt: end.GetAttempt(),
		Agent: end.GetAgent(), InstanceId: end.GetInstanceId(), Time: end.GetTime(), Stage: end.GetStage(),
		RootTraceId: end.GetRootTraceId(),
		Payload:     &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}},
	}
}

// checkOverdue returns trace_orphaned for a trace whose end is overdue, unless the trace has been claimed again
// meanwhile.
func (w *watch) checkOverdue(ctx context.Context) error {
	running, err := w.traces.store.Load(ctx, w.ref)
	if err == nil && running.TimeLeft < -endingTime && running.Record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
		err = orphanedError(w.ref)
	}
	return err
}
