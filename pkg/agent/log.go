package agent

import (
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/sessionlog"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// openLog opens the log of an agent, if it shall have one.
func openLog(c Config, prompt string) (*sessionlog.Log, error) {
	if c.SessionLog == nil {
		return nil, nil
	}
	config := *c.SessionLog
	config.Agent, config.SystemPrompt, config.Model = c.Name, prompt, c.ModelName
	if c.Model != nil {
		config.Model = c.Model.Name()
	}
	return sessionlog.Open(config)
}

// note writes an event to the plain log of the agent (CO-56). A log that cannot be written
// takes no turn with it.
func (t *turn) note(e event.Event) {
	log := t.agent.log
	if log == nil {
		return
	}
	line := sessionlog.Line{Session: t.inv.Step.SessionID, Turn: t.inv.Step.Turn, Time: e.Time}
	switch p := e.Payload.(type) {
	case event.UserInput:
		line.Kind, line.Text = sessionlog.UserInput, p.Prompt
	case event.ModelCall:
		line.Kind, line.Text, line.Duration, line.Usage = sessionlog.ModelCall, p.Model, p.Duration, p.Usage
	case event.ToolFinished:
		line.Kind, line.Text, line.Duration = sessionlog.ToolCall, p.Tool+": "+string(p.Status), p.Duration
	case event.ToolPending:
		line.Kind, line.Text = sessionlog.ToolCall, p.Tool+": "+string(event.ToolWaiting)
	case event.Warning:
		line.Kind, line.Text = sessionlog.Warning, p.Message
	case event.TurnResult:
		line.Kind, line.Text, line.Duration, line.Usage = sessionlog.Result, string(p.Reason), p.Duration, p.Result.Usage
	default:
		return
	}
	t.unwritten(log.Line(line))
}

// logged writes the turn to the session log, once (CO-53, CO-54).
func (t *turn) logged(err error) {
	log := t.agent.log
	if log == nil || t.written {
		return
	}
	t.written = true
	done := t.outcome(err)
	t.unwritten(log.Turn(sessionlog.Turn{
		Session: t.inv.Step.SessionID, Number: t.inv.Step.Turn, Input: prompted(t.inv.Step), Model: t.agent.Model(),
		Started: t.started, Duration: time.Since(t.started), Usage: done.Result.Usage, ToolsCalled: t.control.Turn().ToolsCalled(),
		Result: done.Result.Text, Reason: string(done.Reason), Err: err, Messages: t.control.Turn().Messages(),
	}))
}

func (t *turn) unwritten(err error) {
	if err != nil {
		t.agent.config.Log.Warn("the log of the agent cannot be written", zap.String("agent", t.agent.Name()), zap.Error(err))
	}
}

// complete writes the turn down and runs the handlers of OnComplete, in this order (CO-53).
func (t *turn) complete() *hook.Completion {
	t.logged(nil)
	return &hook.Completion{Turn: t.control.Turn(), Result: t.text, Reason: t.reason, Duration: time.Since(t.started)}
}
