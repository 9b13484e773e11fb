// Package journal replays what earlier attempts of a step did, and records what the current attempt does.
package journal

import (
	"context"

	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Log is the view that one run of the loop has of its step's journal. It numbers the calls of models and tools.
type Log struct {
	journal        execution.Journal // nil records nothing
	allAsSideCalls bool
	lastNumber     int              // number of the last call
	deferred       *execution.Entry // reply that is recorded only if something follows it (nil for none)
}

// New returns the Log of a run for the journal of its step (nil records nothing). With allAsSideCalls, every model
// call of the run is journaled as a side call, outside of the conversation.
func New(store execution.Journal, allAsSideCalls bool) *Log {
	return &Log{journal: store, allAsSideCalls: allAsSideCalls}
}

// NextNumber returns the number of the next call, from 1.
func (l *Log) NextNumber() int {
	l.lastNumber++
	return l.lastNumber
}

// HasJournal reports whether the run has a journal.
func (l *Log) HasJournal() bool { return l.journal != nil }

// SealedJournal returns the sealed journal of a replay (nil if the run is not a replay).
func (l *Log) SealedJournal() stepjournal.SealedJournal {
	s, _ := l.journal.(stepjournal.SealedJournal)
	return s
}

// FindEntry returns the entry with this number and phase from an earlier attempt.
func (l *Log) FindEntry(number int, phase execution.Phase) (execution.Entry, bool) {
	if l.journal == nil {
		return execution.Entry{}, false
	}
	return l.journal.Replay(number, phase)
}

// HasIntent reports whether an earlier attempt recorded the intent to make the call with this number.
func (l *Log) HasIntent(number int) bool {
	_, found := l.FindEntry(number, execution.Intent)
	return found
}

// ModelReply returns the model's reply that an earlier attempt recorded under this number, if there is one. It
// fails with nondeterminism if that attempt called a tool under this number, or asked the model for the other purpose: side
// says that a handler asks, outside of the conversation. In a replay, a call that was not recorded fails, too.
func (l *Log) ModelReply(number int, side bool) (reply execution.Entry, found bool, err error) {
	now := execution.Entry{Number: number, SideCall: side}
	e, ok := l.FindEntry(number, execution.Done)
	switch {
	case !ok:
		return e, false, l.newUnrecordedCallError(now, nil)
	case e.Tool != "":
		return e, false, l.newUnrecordedCallError(now, newNondeterminismError(number, "a call of "+e.Tool, "a model call"))
	case e.SideCall != side && !l.allAsSideCalls:
		return e, false, l.newUnrecordedCallError(now, newNondeterminismError(number, describeModelCall(e.SideCall), describeModelCall(side)))
	}
	return e, true, nil
}

// ToolResult returns how an earlier attempt finished a tool call, if it did. It fails with nondeterminism if that
// attempt made a different call under this number.
func (l *Log) ToolResult(call execution.Entry) (result execution.Entry, found bool, err error) {
	for _, phase := range []execution.Phase{execution.Done, execution.Intent} {
		e, ok := l.FindEntry(call.Number, phase)
		if !ok {
			continue
		}
		if e.Digest != call.Digest {
			return e, false, l.newUnrecordedCallError(call, newNondeterminismError(call.Number, describeEntry(e),
				"a call of "+call.Tool+" with these arguments"))
		}
		return e, phase == execution.Done, nil
	}
	return execution.Entry{}, false, nil
}

// RecordIntent makes sure, before a call runs, that a successor will find what it needs to know about the call. A
// tool that only reads needs no record. An idempotent tool must get the same arguments from a successor, so the
// reply that calls it must be durable first. For a tool that may run only once, the journal must say that it may
// have run. For a nested call, its inner calls record their own intents.
func (l *Log) RecordIntent(ctx context.Context, call execution.Entry, nested bool) error {
	if l.journal == nil || call.Effect == "" || call.Effect == execution.Read {
		return nil
	}
	if call.Effect == execution.AtMostOnce && !nested {
		call.Phase = execution.Intent
		l.Record(call)
	}
	return l.Sync(ctx)
}

// Record adds an entry to the journal. A deferred reply is added before it.
func (l *Log) Record(e execution.Entry) {
	l.recordDeferred()
	if l.journal != nil {
		l.journal.Record(e)
	}
}

// DeferReply remembers the reply that ends the run without recording it, because the commit of the step stores it.
// The reply is recorded only if something follows it, such as a tool or a side call of a handler.
func (l *Log) DeferReply(reply execution.Entry) { l.deferred = &reply }

// recordDeferred records the deferred reply, if there is one.
func (l *Log) recordDeferred() {
	if l.journal != nil && l.deferred != nil {
		l.journal.Record(*l.deferred)
	}
	l.deferred = nil
}

// Sync waits until all recorded entries and the deferred reply are durable.
func (l *Log) Sync(ctx context.Context) error {
	l.recordDeferred()
	if l.journal == nil {
		return nil
	}
	if err := l.journal.Sync(ctx); err != nil {
		if ctx.Err() != nil {
			return stop.NewContextError(ctx)
		}
		return err
	}
	return nil
}

// newUnrecordedCallError returns the error for a call that the journal does not contain. In a replay the sealed
// journal creates the error, and otherwise the given error is returned.
func (l *Log) newUnrecordedCallError(now execution.Entry, otherwise error) error {
	if s := l.SealedJournal(); s != nil {
		return s.AddUnexpectedCall(now)
	}
	return otherwise
}

// newNondeterminismError returns the error for a step that makes a different call than an earlier attempt made
// under the same number.
func newNondeterminismError(number int, was, is string) error {
	return failure.Newf(failure.Nondeterminism, "loop.Run",
		"number %d of the step was %s when its worker was lost, and is %s now; the agent's code or configuration changed under a running step", number, was, is)
}

func describeModelCall(side bool) string {
	if side {
		return "a model call that a handler made"
	}
	return "a model call of the conversation"
}

func describeEntry(e execution.Entry) string {
	if e.Tool == "" {
		return "a model call"
	}
	return "a call of " + e.Tool
}
