package loop

import (
	"context"
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
)

// endWithAnswer ends the run.
func (r *run) endWithAnswer(ctx context.Context, a *event.Answer) error {
	if err := r.budget.Rejection(); err != nil { // a handler continued after the budget was exceeded
		return err
	}
	if a.Reason == event.Stopped {
		r.stop.IgnoreCaller()
		if err := r.Handlers.OnStopSignal(ctx); err != nil {
			return err
		}
	}
	a.Iterations = r.turn.Iteration()
	return r.Events.Emit(*a)
}

// endAtLimit ends the run at its limit of iterations. It emits a warning that the answer is incomplete, and then
// the answer (CO-26, C-8, LP-15).
func (r *run) endAtLimit() error {
	incomplete := fmt.Sprintf("Task incomplete: Maximum iterations (%d) reached.", r.maxIterations)
	if err := r.Events.Emit(event.Warning{Reason: ReasonMaxIterations, Message: incomplete}); err != nil {
		return err
	}
	text := r.lastText()
	if text == "" {
		text = incomplete
		if err := r.addReply(text, nil); err != nil {
			return err
		}
	}
	return r.Events.Emit(event.Answer{Text: text, Reason: event.MaxIterations, Iterations: r.maxIterations})
}

// handlerEndAnswer returns the answer of a turn that a handler ended, which is the last text of the model. It
// returns nil while the turn continues.
func (r *run) handlerEndAnswer() *event.Answer {
	if !r.Progress.Ended() {
		return nil
	}
	return &event.Answer{Text: r.lastText(), Reason: event.Stopped}
}

// stopAnswer returns the answer of a stopped run. It contains the stop reason, if there is one.
func (r *run) stopAnswer() *event.Answer {
	text := "The turn was stopped."
	if why := r.Progress.StopReason(); why != "" {
		text = "The turn was stopped: " + why
	}
	return &event.Answer{Text: text, Reason: event.Stopped}
}

// lastText returns the model's last text in this turn (empty if there is none).
func (r *run) lastText() string {
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
