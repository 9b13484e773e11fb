package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/hookerror"
	"github.com/troupe-dev/troupe/pkg/agent/internal/briefing"
	"github.com/troupe-dev/troupe/pkg/agent/internal/result"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Reasons of the warnings that an agent emits, in addition to the reasons in package loop.
const (
	ReasonTextCut  = "TEXT_CUT"      // the agent's text exceeded the limit of a message and was cut
	ReasonDegraded = "STEP_DEGRADED" // the step failed, and its FailurePolicy turned the failure into a result
)

// genericQuestion is the question of an agent that must ask the user but has no text from its model (RA-13).
const genericQuestion = "Could you tell me more about what you would like to know?"

// output holds the result of the step and the messages to commit.
type output struct {
	result   execution.Result
	messages []conversation.Message
}

// isForgivable reports whether an error of the agent still leads to a result. An agent that asks the user always has a
// question (RA-13). An error of a handler is never forgiven, nor an error of a step that another attempt has taken
// over.
func (t *turn) isForgivable(err error) bool {
	if errors.Is(err, errReaderStopped) || hookerror.Is(err) || failure.IsSuperseded(err) || len(t.inv.Step.Routes) > 0 {
		return false
	}
	return t.agent.config.hasResultOnFailure()
}

// hasResultOnFailure reports whether a failed step has a result.
func (c *Config) hasResultOnFailure() bool { return c.AsksUser || c.OnFailure == Degrade }

// conclude turns the answer, or a failure that the agent forgives, into the result of the step.
func (t *turn) conclude(cause error) error {
	if len(t.inv.Step.Routes) > 0 {
		return t.chooseRoute()
	}
	if t.planner != nil {
		t.answer.tasks = t.planner.Tasks()
	}
	if cause == nil && strings.TrimSpace(t.answer.text) == "" && !t.control.Progress.Ended() && len(t.answer.tasks) == 0 {
		cause = failure.Newf(failure.AgentLogic, "agent.Run", "agent %s gave an empty answer", t.agent.Name())
		if !t.agent.config.hasResultOnFailure() {
			return cause
		}
	}
	t.fillResult(cause)
	if tasks := t.output.result.Tasks; len(tasks) > 0 {
		if err := t.control.Events.Emit(event.PlanMade{Tasks: tasks}); err != nil {
			return err
		}
	}
	if cause != nil {
		if err := t.degrade(cause); err != nil {
			return err
		}
	}
	if t.answer.text == "" {
		return nil
	}
	if err := t.addReply(t.answer.text); err != nil {
		return err
	}
	t.answer.text = t.output.messages[0].Text
	t.output.result.Text = t.answer.text
	return t.storeAnswer()
}

// fillResult fills in the fields of the result that follow from the answer and the tally.
func (t *turn) fillResult(cause error) {
	asks, r := t.agent.config.AsksUser, &t.output.result
	if cause != nil || asks && t.answer.reason == event.Natural {
		t.answer.reason = event.Natural
		if asks {
			t.answer.reason = event.InputRequired
		}
	}
	reason := t.answer.reason
	r.InputRequired = reason == event.InputRequired || asks && reason == event.MaxIterations
	r.Stopped = reason == event.Stopped && !t.control.Progress.Ended()
	r.MaxIterations = reason == event.MaxIterations
	r.ToolsCalled, r.Observations = t.tally.Tools, t.tally.Observations
	if cause == nil && !r.InputRequired && !r.Stopped {
		r.Tasks = t.answer.tasks
	}
	r.Confidence = cmp.Or(t.answer.confidence, briefing.Confidence(t.inv.Step, r.Observations))
}

// degrade turns a failure into a result. An agent that asks the user gets a question. Any other agent gets the
// text of the step before, or else an explanation (RA-13, RA-18, RA-20).
func (t *turn) degrade(cause error) error {
	r, name := &t.output.result, t.agent.Name()
	what := fmt.Sprintf("%s failed: %s", strings.ToUpper(name[:1])+name[1:], result.PublicReason(cause))
	if t.agent.config.AsksUser {
		t.answer.text = genericQuestion
	} else {
		t.answer.text = briefing.LastText(t.inv.Step)
		if t.answer.text == "" {
			t.answer.text = fmt.Sprintf("I could not finish this. %s.", what)
		}
		none := 0.0
		r.Confidence = &none
		r.Observations = append(r.Observations[:min(len(r.Observations), execution.MaxObservations-1)], what)
	}
	return t.control.Events.Emit(event.Warning{Reason: ReasonDegraded, Message: what})
}

// chooseRoute finds the route that the model's text names. A handler that answers in place of the model must
// return exactly the name of a route. If it returns another text or ends the turn, the step fails.
func (t *turn) chooseRoute() error {
	isBare := slices.ContainsFunc(t.inv.Step.Routes, func(route string) bool { return strings.EqualFold(route, strings.TrimSpace(t.answer.text)) })
	if !isBare && (t.control.Progress.Ended() || t.answer.reason != event.Natural && t.answer.reason != event.MaxIterations) {
		return failure.Newf(failure.PolicySecurity, "agent.Run", "a handler kept agent %s from choosing a route: %s",
			t.agent.Name(), cmp.Or(t.answer.text, "it ended the turn"))
	}
	t.output.result.NextAgent = result.MatchRoute(t.inv.Step.Routes, t.answer.text)
	t.answer.text = ""
	return nil
}

// storeAnswer stores the answer in the session's state under Config.OutputKey, if that is set (AD-30).
func (t *turn) storeAnswer() error {
	key, answer := t.agent.config.OutputKey, t.answer.text
	if key == "" {
		return nil
	}
	text, err := result.CutForState(answer)
	if err != nil {
		return err
	}
	if len(text) < len(answer) {
		if err := t.control.Events.Emit(event.Warning{Reason: ReasonTextCut, Message: fmt.Sprintf(
			"agent %s said more than the %d bytes that a key of state may have; %s holds the beginning", t.agent.Name(), result.MaxStateBytes, key)}); err != nil {
			return err
		}
	}
	return t.control.Turn().Memory().Set(key, text)
}

// concludeWaiting makes the result of a step with pending calls, even if the step chooses a route. This result is
// not an answer, so AfterAgent and OnComplete do not run. The turn that continues produces the same observations,
// messages and changes of state again.
func (t *turn) concludeWaiting(ctx context.Context) error {
	text, err := result.WaitingText(t.answer.pending)
	if err != nil {
		return err
	}
	if j := t.inv.Step.Journal; j != nil { // concurrent agents continued while this call waited
		if err := j.Sync(ctx); err != nil {
			return err
		}
	}
	t.answer.reason, t.answer.text = event.InputRequired, text
	r := &t.output.result
	r.InputRequired, r.Pending, r.Text, r.ToolsCalled = true, t.answer.pending, t.answer.text, t.tally.Tools
	m := conversation.Assistant(t.agent.Name(), t.answer.text)
	t.control.Conversation.AddMessageSources()
	m.Untrusted = t.control.Turn().Untrusted()
	t.output.messages = []conversation.Message{m}
	return nil
}

// addReply adds the agent's text to the messages to store. It also adds the text to the agent's own copy of the
// conversation, unless it is there already (CO-28).
func (t *turn) addReply(text string) error {
	t.control.Conversation.AddMessageSources() // tool results that no model has read count as observations
	m := conversation.Assistant(t.agent.Name(), text)
	m.Untrusted = t.control.Turn().Untrusted()
	if !briefing.HasReply(t.control.Turn().Messages(), text) {
		t.control.Conversation.Append(m)
		if err := t.control.EmitLast(); err != nil {
			return err
		}
	}
	if len(text) > conversation.MaxMessageBytes {
		m.Text = conversation.Truncate(text, conversation.MaxMessageBytes)
		if err := t.control.Events.Emit(event.Warning{Reason: ReasonTextCut, Message: fmt.Sprintf(
			"agent %s said more than %d bytes; the rest is cut off", t.agent.Name(), conversation.MaxMessageBytes)}); err != nil {
			return err
		}
	}
	t.output.messages = append(t.output.messages, m)
	return nil
}

// lastEvent returns the last event of the turn: its result, or the error with which it failed.
func (t *turn) lastEvent(err error) event.TurnResult {
	t.control.Conversation.AddMessageSources()
	r := t.output.result
	r.Untrusted = t.control.Turn().Untrusted()
	r.Step, r.Agent = t.inv.Step.Number, t.agent.Name()
	r.Iterations, r.Usage = t.tally.Iterations(), t.tally.Usage
	t.control.Progress.AddUsage(t.scopeRun.TakeUsage(), true)
	if t.agent.config.Run == nil { // a failed call has no event, but has used tokens
		r.Iterations, r.Usage = t.control.Turn().Iteration(), t.control.Turn().Usage()
	}
	done := event.TurnResult{
		Turn: t.inv.Step.Turn, Reason: t.answer.reason, Duration: time.Since(t.started),
		Ended: t.control.Progress.Ended(), Escalate: t.control.Progress.Escalated(),
	}
	if u := r.Usage; u.InputTokens > 0 || u.OutputTokens > 0 || u.CostMicros > 0 { // otherwise the usage is unknown
		done.Usage = &u
	}
	if err == nil {
		done.Result, done.Messages = r, t.output.messages
		if len(r.Pending) == 0 {
			done.State = t.control.ChangesToStore()
			done.Expected, done.Rebase = t.control.ExpectedRevisions()
			done.Rounds = briefing.Added(t.inv.Step, briefing.RoundTokens(t.agent.config.Model, t.inv.Step), t.control.Turn().Messages())
		}
		return done
	}
	done.Result = execution.Result{Step: r.Step, Agent: r.Agent, Iterations: r.Iterations, Usage: r.Usage, Untrusted: r.Untrusted}
	done.SetError(err)
	return done
}
