package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// exhausted is the end at the limit of iterations: an answer, and a warning that says that
// it is not complete (CO-26, C-8, LP-15).
func (r *run) exhausted(limit int) error {
	incomplete := fmt.Sprintf("Task incomplete: Maximum iterations (%d) reached.", limit)
	if err := r.Events.Emit(event.Warning{Reason: ReasonMaxIterations, Message: incomplete}); err != nil {
		return err
	}
	text := r.lastWords()
	if text == "" {
		text = incomplete
		if err := r.say(&hook.LLMReply{Text: text}); err != nil {
			return err
		}
	}
	return r.Events.Emit(event.Answer{Text: text, Reason: event.MaxIterations, Iterations: limit})
}

// lastWords are what the model said last in this turn; empty: nothing.
func (r *run) lastWords() string {
	for _, m := range slices.Backward(r.turn.Messages()) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			return ""
		}
		if m.Role == conversation.RoleAssistant && m.Text != "" {
			return m.Text
		}
	}
	return ""
}

// stopping reports whether somebody asked the run to stop.
func (r *run) stopping() bool { return r.Progress.StopReason() != "" || r.signalled() }

// signalled reports whether the request came from outside. The contexts that end with it do so
// a moment later.
func (r *run) signalled() bool { return r.stoppable() && r.in.Stop.Err() != nil }

func (r *run) stoppable() bool { return r.in.Stop != nil && !r.unstoppable }

// late is the error of a handler, unless the stop cut off what it asked the model: then the
// turn is stopped at the next place that looks for it.
func late(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// stopped is the answer of a run that was stopped.
func (r *run) stopped() *event.Answer {
	text := "The turn was stopped."
	if why := r.Progress.StopReason(); why != "" {
		text = "The turn was stopped: " + why
	}
	return &event.Answer{Text: text, Reason: event.Stopped}
}

// interruptible returns a context that ends with ctx, and when the run is to stop.
func (r *run) interruptible(ctx context.Context) (context.Context, func()) {
	if !r.stoppable() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(r.in.Stop, func() { cancel(errStop) })
	return ctx, func() { forget(); cancel(nil) }
}

// patiently runs handlers that may wait, for a person or until they may go on: their context
// also ends when the run is to stop (CO-63).
func (r *run) patiently(ctx context.Context, handlers func(context.Context) error) error {
	ctx, done := r.interruptible(ctx)
	defer done()
	if err := handlers(ctx); err == nil || ctx.Err() == nil {
		return err
	}
	return r.halted(ctx)
}

// halted says why a call of the model is given up: errStop, or an error for the caller.
func (r *run) halted(ctx context.Context) error {
	if r.signalled() {
		return errStop
	}
	return ended(ctx)
}

// ended says why ctx ended.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure.New(failure.AgentTimeout, "loop.Run",
			"the agent took longer than it may; raise its limits.timeout, or ask for less").Because(cause)
	}
	return failure.New(failure.UserCancelled, "loop.Run", "the step was cancelled").Because(cause)
}
