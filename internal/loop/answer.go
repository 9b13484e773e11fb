package loop

import (
	"context"
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
)

// answer ends the run.
func (r *run) answer(ctx context.Context, a *event.Answer) error {
	if err := r.budget.Rejection(); err != nil { // a handler continued after it
		return err
	}
	if a.Reason == event.Stopped {
		r.stop.Disable()
		if err := r.Handlers.OnStopSignal(ctx); err != nil {
			return err
		}
	}
	a.Iterations = r.turn.Iteration()
	return r.Events.Emit(*a)
}

// answerIncomplete ends the run at its limit of iterations: with an answer, and with a warning that it is not complete
// (CO-26, C-8, LP-15).
func (r *run) answerIncomplete() error {
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

// endedAnswer returns the answer of a turn that a handler ended, which is the last text. It is nil while the turn
// continues.
func (r *run) endedAnswer() *event.Answer {
	if !r.Progress.Ended() {
		return nil
	}
	return &event.Answer{Text: r.lastText(), Reason: event.Stopped}
}

// stoppedAnswer returns the answer of a run that was stopped.
func (r *run) stoppedAnswer() *event.Answer {
	text := "The turn was stopped."
	if why := r.Progress.StopReason(); why != "" {
		text = "The turn was stopped: " + why
	}
	return &event.Answer{Text: text, Reason: event.Stopped}
}

// lastText returns the last text of the model in this turn (empty if there is none).
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
