package agent

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent/internal/briefing"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// beginRun begins the run of an agent that no other agent runs (AD-25): it emits what the user
// said and runs the OnUserMessage and BeforeRun handlers. A reply ends the run.
func (t *turn) beginRun(ctx context.Context) (reply string, err error) {
	input := []event.Payload{event.UserInput{Turn: t.inv.Step.Turn, Prompt: briefing.UserPrompt(t.inv.Step)}}
	if files := briefing.UserFiles(t.inv.Step); len(files) > 0 {
		input = append(input, event.FilesReceived{Files: files})
	}
	for _, p := range input {
		if err := t.control.Events.Forward(event.Event{Author: userAuthor, Payload: p}); err != nil {
			return "", err
		}
	}
	text, err := t.control.Handlers.OnUserMessage(ctx)
	if err != nil {
		return "", err
	}
	if len(text) > conversation.MaxMessageBytes {
		return "", failure.Newf(failure.AgentLogic, "hook.OnUserMessage", "the text of OnUserMessage has %d bytes; at most %d are allowed",
			len(text), conversation.MaxMessageBytes)
	}
	if text != "" { // for this agent and the agents inside of it
		t.inv.Step.History = briefing.WithUserText(t.inv.Step.History, text)
		err = t.control.Turn().Replace(briefing.WithUserText(t.control.Turn().Messages(), text))
	}
	if err != nil || t.control.Progress.Ended() {
		return "", err
	}
	return t.control.Handlers.BeforeRun(ctx)
}

// afterRunTime bounds the AfterRun handlers of a run whose context has ended. The orchestrator waits longer than that for the
// end of a cancelled step.
const afterRunTime = time.Second

// endRun ends such a run: it runs the AfterRun handlers and returns the error of the run: err, or the first error of a handler. Events no longer
// reach the OnEvent handlers, so that one that failed does not keep the turn from its last event.
func (t *turn) endRun(ctx context.Context, err error) error {
	t.control.Events.EndInterception()
	if t.inv.scope.Branch != "" {
		return err
	}
	if ctx.Err() != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterRunTime)
		defer cancel()
		ctx = late
	}
	done := &hook.Completion{Turn: t.control.Turn(), Result: t.answer.text, Reason: t.lastEvent(err).Reason, Duration: time.Since(t.started), Err: err}
	failed := t.control.Handlers.AfterRun(ctx, done)
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	default:
		return t.control.EmitChanges("")
	}
}
