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

// How often the store is asked for more of a trace that another replica drives: seldom while
// nothing comes.
const (
	minLook = 50 * time.Millisecond
	maxLook = 800 * time.Millisecond
)

// ending is what an owner may need to end a trace behind its timeout, before those who watch
// give it up: to close the turn, or to be followed by another who does.
const ending = 45 * time.Second

// Watch yields the events of a trace above after, those that happened and then those that
// come, without a gap, up to the turn result: whichever replica drives it, and when that
// changes. Text deltas come from the replica itself. Of a trace that another drives, a
// finished step's whole text comes as one delta before its end, when the watch has seen the
// step begin and the trace had not ended before it; else the text is in the step's result only.
//
// An error is the last item: not_found, user_invalid_input when the trace does not go as far
// as after, or trace_orphaned when nobody has ended it in its time.
func (t *Traces) Watch(ctx context.Context, ref Ref, after uint64) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		w := &watch{traces: t, ref: ref, after: after, yield: yield, begun: map[int32]bool{}}
		if err := w.run(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// watch is one call of Watch.
type watch struct {
	traces *Traces
	ref    Ref
	yield  func(*troupev1.Event, error) bool

	after uint64         // sequence of the last event
	lived bool           // the trace ran when the watch began
	begun map[int32]bool // steps whose start was seen and not their end: those of a fork run at once
	over  bool           // the consumer wants no more, or there is no more
}

// run goes from the replica's own log to the store and back, as the trace moves.
func (w *watch) run(ctx context.Context) error {
	for {
		l := w.traces.driven(w.ref)
		if l == nil {
			if err := w.follow(ctx); err != nil || w.over {
				return err
			}
			continue // driven here now
		}
		w.lived = true
		err := w.own(ctx, l)
		if w.over || err != nil && !failure.Is(err, failure.TraceOrphaned) {
			return err
		}
		clear(w.begun) // their text may have been shown
		if w.traces.driven(w.ref) == l {
			w.traces.forget(l) // it was refused; its turn is about to find out
		}
	}
}

// own shows the log of this replica, until it ends or the trace has gone elsewhere.
func (w *watch) own(ctx context.Context, l *Log) error {
	for e, err := range l.Watch(ctx, w.after) {
		if err != nil {
			return err
		}
		if !w.show(e) {
			return nil
		}
	}
	w.over = true
	return nil
}

func (w *watch) show(e *troupev1.Event) bool {
	w.after = max(w.after, e.GetSequence())
	w.over = !w.yield(e, nil) || e.GetTurnResult() != nil
	return !w.over
}

// follow shows what another replica stores, until the trace ends, or is driven here.
func (w *watch) follow(ctx context.Context) error {
	running, err := w.traces.store.Load(ctx, w.ref)
	if err == nil {
		err = inRange(w.after, running.Record.GetLastSequence())
	}
	if err != nil {
		return err
	}
	ended := running.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED
	if ended && w.after == running.Record.GetLastSequence() {
		w.over = true
		return nil
	}
	w.lived = w.lived || !ended
	given := time.Now().Add(running.Left + ending)
	pause := minLook
	for {
		page, err := w.traces.store.Events(ctx, w.ref, w.after, pageSize)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !w.stored(e) {
				return nil
			}
			pause = minLook
		}
		switch {
		case len(page) == pageSize:
			continue
		case ended:
			return forgotten(w.ref)
		case running.Terms == Terms{}: // of an owner that vouches for nothing
			return orphaned(w.ref)
		case time.Now().After(given):
			return w.givenUp(ctx)
		}
		if err := retry.Sleep(ctx, pause); err != nil || w.traces.driven(w.ref) != nil {
			return err
		}
		pause = min(2*pause, maxLook)
	}
}

// stored shows an event as it is stored. Text that was not told as it came is told before the
// end of its step.
func (w *watch) stored(e *troupev1.Event) bool {
	switch {
	case e.GetStepStarted() != nil, e.GetTextRetracted() != nil:
		w.begun[e.GetStep()] = true
	case e.GetStepFinished() != nil:
		text := e.GetStepFinished().GetResult().GetText()
		if w.begun[e.GetStep()] && text != "" && w.lived && !w.show(wholeText(e, text)) {
			return false
		}
		delete(w.begun, e.GetStep())
	}
	return w.show(e)
}

// wholeText is the text of a step that has ended, as one delta.
func wholeText(end *troupev1.Event, text string) *troupev1.Event {
	return &troupev1.Event{
		TraceId: end.GetTraceId(), SessionId: end.GetSessionId(), Turn: end.GetTurn(), Step: end.GetStep(), Attempt: end.GetAttempt(),
		Agent: end.GetAgent(), InstanceId: end.GetInstanceId(), Time: end.GetTime(), Stage: end.GetStage(),
		RootTraceId: end.GetRootTraceId(),
		Payload:     &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}},
	}
}

// givenUp is called when a trace should have ended long since, unless it was begun anew.
func (w *watch) givenUp(ctx context.Context) error {
	running, err := w.traces.store.Load(ctx, w.ref)
	if err == nil && running.Left < -ending && running.Record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
		err = orphaned(w.ref)
	}
	return err
}
