// Package journal replays what earlier attempts of a step did, and records what this one does.
package journal

import (
	"context"

	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Log is the journal of a step as one run of the loop uses it. It numbers the calls of models and tools.
type Log struct {
	store        execution.Journal // nil keeps nothing
	allSideCalls bool
	number       int              // of the last call
	deferred     *execution.Entry // a reply that is only recorded when something follows it
}

// New returns the log of a run over the journal of its step (nil keeps nothing). With allSideCalls the journal has every
// model call as one outside of the conversation.
func New(store execution.Journal, allSideCalls bool) *Log {
	return &Log{store: store, allSideCalls: allSideCalls}
}

// NextNumber returns the number of the next call, from 1.
func (l *Log) NextNumber() int {
	l.number++
	return l.number
}

// IsKept reports whether there is a journal.
func (l *Log) IsKept() bool { return l.store != nil }

// Sealed returns the journal of a run that is only a replay, or nil.
func (l *Log) Sealed() stepjournal.Sealed {
	s, _ := l.store.(stepjournal.Sealed)
	return s
}

// Find returns an entry of an earlier attempt.
func (l *Log) Find(number int, phase execution.Phase) (execution.Entry, bool) {
	if l.store == nil {
		return execution.Entry{}, false
	}
	return l.store.Replay(number, phase)
}

// HasIntent reports whether an earlier attempt recorded that it was about to make the call of a number.
func (l *Log) HasIntent(number int) bool {
	_, found := l.Find(number, execution.Intent)
	return found
}

// ModelReply returns the model's reply from an earlier attempt, if that attempt made the call. It fails with
// nondeterminism if the attempt made another call under this number.
func (l *Log) ModelReply(number int, side bool) (reply execution.Entry, found bool, err error) {
	now := execution.Entry{Number: number, SideCall: side}
	e, ok := l.Find(number, execution.Done)
	switch {
	case !ok:
		return e, false, l.strayError(now, nil)
	case e.Tool != "":
		return e, false, l.strayError(now, differenceError(number, "a call of "+e.Tool, "a model call"))
	case e.SideCall != side && !l.allSideCalls:
		return e, false, l.strayError(now, differenceError(number, describeModelCall(e.SideCall), describeModelCall(side)))
	}
	return e, true, nil
}

// ToolResult returns how a tool call ended in an earlier attempt, if that attempt finished it. It fails with
// nondeterminism when the attempt called something else under this number.
func (l *Log) ToolResult(call execution.Entry) (result execution.Entry, found bool, err error) {
	for _, phase := range []execution.Phase{execution.Done, execution.Intent} {
		e, ok := l.Find(call.Number, phase)
		if !ok {
			continue
		}
		if e.Digest != call.Digest {
			return e, false, l.strayError(call, differenceError(call.Number, describe(e), "a call of "+call.Tool+" with these arguments"))
		}
		return e, phase == execution.Done, nil
	}
	return execution.Entry{}, false, nil
}

// Intend makes sure that a successor learns of a call before the call runs. A tool that only reads needs
// nothing. An idempotent tool must get the same arguments from a successor, so the reply that asks for it must
// be durable first. For a tool that may run only once, the journal must say that it may have run. The calls
// inside of a nested call do this themselves.
func (l *Log) Intend(ctx context.Context, call execution.Entry, nested bool) error {
	if l.store == nil || call.Effect == "" || call.Effect == execution.Read {
		return nil
	}
	if call.Effect == execution.AtMostOnce && !nested {
		call.Phase = execution.Intent
		l.Record(call)
	}
	return l.Sync(ctx)
}

// Record adds an entry. If a reply was deferred, it adds that reply first.
func (l *Log) Record(e execution.Entry) {
	l.flush()
	if l.store != nil {
		l.store.Record(e)
	}
}

// Defer keeps the reply that ends the run without recording it, because the commit of the step stores it. It is
// recorded only if something follows: a tool that a handler asked for, or a side call of a handler.
func (l *Log) Defer(reply execution.Entry) { l.deferred = &reply }

// flush records the deferred reply.
func (l *Log) flush() {
	if l.store != nil && l.deferred != nil {
		l.store.Record(*l.deferred)
	}
	l.deferred = nil
}

// Sync returns once all recorded entries and the deferred reply are durable.
func (l *Log) Sync(ctx context.Context) error {
	l.flush()
	if l.store == nil {
		return nil
	}
	if err := l.store.Sync(ctx); err != nil {
		if ctx.Err() != nil {
			return stop.ContextError(ctx)
		}
		return err
	}
	return nil
}

// strayError returns the error of a run that would do something that its journal does not contain. In a replay
// the sealed journal makes the error.
func (l *Log) strayError(now execution.Entry, otherwise error) error {
	if s := l.Sealed(); s != nil {
		return s.Stray(now)
	}
	return otherwise
}

// differenceError returns the error of a step that does not repeat what an earlier attempt did.
func differenceError(number int, was, is string) error {
	return failure.Newf(failure.Nondeterminism, "loop.Run",
		"number %d of the step was %s when its worker was lost, and is %s now; the agent's code or configuration changed under a running step", number, was, is)
}

func describeModelCall(side bool) string {
	if side {
		return "a model call that a handler made"
	}
	return "a model call of the conversation"
}

func describe(e execution.Entry) string {
	if e.Tool == "" {
		return "a model call"
	}
	return "a call of " + e.Tool
}
