package loop

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// said finds what the model replied in an attempt before this one, and tells it again.
func (r *run) said(number int, aside bool) (reply conversation.Message, usage execution.Usage, known bool, err error) {
	e, ok := r.replay(number, execution.Done)
	if !ok {
		return reply, usage, false, r.stray(execution.Entry{Number: number, Aside: aside}, nil)
	}
	if e.Tool != "" {
		return reply, usage, false, r.stray(execution.Entry{Number: number, Aside: aside}, differs(number, "a call of "+e.Tool, "a model call"))
	}
	if e.Aside != aside && !r.in.Apart {
		return reply, usage, false, r.stray(execution.Entry{Number: number, Aside: aside}, differs(number, asked(e.Aside), asked(aside)))
	}
	r.Progress.AddUsage(e.Usage, aside)
	if e.Mode != "" { // it failed, and a handler went on from there
		return reply, e.Usage, true, failure.New(failure.Mode(e.Mode), "loop.Run", e.Text)
	}
	if e.Reply.Text != "" && !aside && !r.quiet {
		if err := r.Events.Emit(event.TextDelta{Text: e.Reply.Text}); err != nil {
			return e.Reply, e.Usage, true, err
		}
	}
	return e.Reply, e.Usage, true, r.Events.Emit(r.called(heard{model: r.loop.Model.Name()}, e.Reply, e.Usage, aside, 0, true))
}

// did finds what a tool call led to in an attempt before this one. It fails when that
// attempt called something else.
func (r *run) did(call execution.Entry) (execution.Entry, bool, error) {
	for _, phase := range []execution.Phase{execution.Done, execution.Intent} {
		e, ok := r.replay(call.Number, phase)
		if !ok {
			continue
		}
		if e.Digest != call.Digest {
			return e, false, r.stray(call, differs(call.Number, described(e), "a call of "+call.Tool+" with these arguments"))
		}
		return e, phase == execution.Done, nil
	}
	return execution.Entry{}, false, nil
}

// intend makes sure that a successor finds what is about to happen. A tool that only reads
// needs no such care; one that is idempotent must get the same arguments from a successor,
// so the reply that asks for it has to be durable; of one that may run once it must be known
// that it may have run. Of what a nested tool does each call sees to that itself.
func (r *run) intend(ctx context.Context, call execution.Entry, nested bool) error {
	if r.in.Journal == nil || call.Effect == "" || call.Effect == execution.Read {
		return nil
	}
	r.settle()
	if call.Effect == execution.AtMostOnce && !nested {
		call.Phase = execution.Intent
		r.record(call)
	}
	if err := r.in.Journal.Sync(ctx); err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return err
	}
	return nil
}

// inDoubt reports whether an attempt before this one was lost while it ran a tool that may
// run once.
func (r *run) inDoubt(w *work) bool {
	_, begun := r.replay(w.entry.Number, execution.Intent)
	return begun && !w.lasts() && w.entry.Effect != execution.Read && w.entry.Effect != execution.Idempotent
}

// unknownOutcome is what a model reads of a tool that was running when its worker was lost.
func unknownOutcome(tool string) string {
	return fmt.Sprintf("%s: it is not known whether %s did its work before its worker was lost. "+
		"It was not run again, because it may run only once. Find out in another way, or ask the user.", failure.UnknownOutcome.Reason(), tool)
}

// sealed is the journal of a run that is only a replay; nil: it is none.
func (r *run) sealed() stepjournal.Sealed {
	s, _ := r.in.Journal.(stepjournal.Sealed)
	return s
}

// stray is the error of a run that would do what its journal does not have: otherwise, unless it
// is a replay.
func (r *run) stray(now execution.Entry, otherwise error) error {
	if s := r.sealed(); s != nil {
		return s.Stray(now)
	}
	return otherwise
}

func (r *run) replay(number int, phase execution.Phase) (execution.Entry, bool) {
	if r.in.Journal == nil {
		return execution.Entry{}, false
	}
	return r.in.Journal.Replay(number, phase)
}

func (r *run) record(e execution.Entry) {
	if r.in.Journal != nil {
		r.settle()
		r.in.Journal.Record(e)
	}
}

// settle records the reply that is owed: what follows it, a tool that a handler asked for or
// what the model said of it to a handler, rests on it.
func (r *run) settle() {
	if r.in.Journal != nil && r.owed != nil {
		r.in.Journal.Record(*r.owed)
	}
	r.owed = nil
}

// differs is what a step fails with that does not do again what it did before.
func differs(number int, was, is string) error {
	return failure.Newf(failure.Nondeterminism, "loop.Run",
		"number %d of the step was %s when its worker was lost, and is %s now; the agent's code or configuration changed under a running step", number, was, is)
}

func asked(aside bool) string {
	if aside {
		return "a model call that a handler made"
	}
	return "a model call of the conversation"
}

func described(e execution.Entry) string {
	if e.Tool == "" {
		return "a model call"
	}
	return "a call of " + e.Tool
}
