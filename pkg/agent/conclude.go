package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// conclude makes the result of what was said, or of a failure that the agent forgives.
func (t *turn) conclude(cause error) error {
	a, step := t.agent, t.inv.Step
	if len(step.Routes) > 0 {
		return t.decide()
	}
	if t.planner != nil {
		t.tasks = t.planner.tasks
	}
	if cause == nil && strings.TrimSpace(t.text) == "" && !t.control.Progress.Ended() && len(t.tasks) == 0 {
		cause = failure.Newf(failure.AgentLogic, "agent.Run", "agent %s gave an empty answer", a.Name())
		if !a.forgives() {
			return cause
		}
	}
	if cause != nil || a.config.AsksUser && t.reason == event.Natural {
		t.reason = event.Natural
		if a.config.AsksUser {
			t.reason = event.InputRequired
		}
	}
	t.result.InputRequired = t.reason == event.InputRequired || a.config.AsksUser && t.reason == event.MaxIterations
	t.result.Stopped = t.reason == event.Stopped && !t.control.Progress.Ended()
	t.result.ToolsCalled = t.tally.tools
	t.result.Observations = t.tally.found
	if cause == nil && !t.result.InputRequired && !t.result.Stopped {
		t.result.Tasks = t.tasks
	}
	t.result.MaxIterations = t.reason == event.MaxIterations
	t.result.Confidence = cmp.Or(t.judged, confidence(step, t.result.Observations))
	if cause != nil {
		if err := t.degrade(cause); err != nil {
			return err
		}
	}
	if t.text == "" {
		return nil
	}
	if err := t.say(t.text); err != nil {
		return err
	}
	t.text = t.messages[0].Text
	t.result.Text = t.text
	return t.store()
}

// decide makes a route of what the model said. A handler that answers in its stead decides
// with the bare name of a route; whatever else it says, and the end that it makes, ends the
// turn.
func (t *turn) decide() error {
	bare := slices.ContainsFunc(t.inv.Step.Routes, func(route string) bool { return strings.EqualFold(route, strings.TrimSpace(t.text)) })
	if !bare && (t.control.Progress.Ended() || t.reason != event.Natural && t.reason != event.MaxIterations) {
		return failure.Newf(failure.PolicySecurity, "agent.Run", "agent %s was not let decide where to go: %s",
			t.agent.Name(), cmp.Or(t.text, "a handler ended the turn"))
	}
	t.result.NextAgent = choose(t.inv.Step.Routes, t.text)
	t.text = ""
	return nil
}

// store puts the answer into the session's state, if that is wanted (AD-30).
func (t *turn) store() error {
	key := t.agent.config.OutputKey
	if key == "" {
		return nil
	}
	text, err := fit(t.text, memory.MaxStateValue)
	if err != nil {
		return err
	}
	if len(text) < len(t.text) {
		if err := t.control.Events.Emit(event.Warning{Reason: ReasonTextCut, Message: fmt.Sprintf(
			"agent %s said more than the %d bytes that a key of state may have; %s holds the beginning", t.agent.Name(), memory.MaxStateValue, key)}); err != nil {
			return err
		}
	}
	return t.control.Turn().Memory().Set(key, text)
}

// fit is the beginning of a text whose JSON has at most limit bytes.
func fit(text string, limit int) (string, error) {
	for {
		asJSON, err := json.Marshal(text)
		if err != nil || len(asJSON) <= limit {
			return text, err
		}
		text = conversation.Cut(text, min(limit, len(text)*9/10))
	}
}

// outcome is the last event: what the turn led to, or what it failed with.
func (t *turn) outcome(err error) event.TurnResult {
	t.control.Conversation.MarkMessagesRead()
	t.result.Untrusted = t.control.Turn().Untrusted()
	t.result.Step, t.result.Agent = t.inv.Step.Number, t.agent.Name()
	t.result.Iterations, t.result.Usage = t.tally.iterations+t.tally.below, t.tally.usage
	t.control.Progress.AddUsage(t.inner.take(), true)
	if t.agent.config.Run == nil { // a call that failed has no event, and consumed all the same
		t.result.Iterations, t.result.Usage = t.control.Turn().Iteration(), t.control.Turn().Usage()
	}
	done := event.TurnResult{
		Turn: t.inv.Step.Turn, Reason: t.reason, Duration: time.Since(t.started),
		Ended: t.control.Progress.Ended(), Escalate: t.control.Progress.Escalated(),
	}
	if u := t.result.Usage; u.InputTokens > 0 || u.OutputTokens > 0 || u.CostMicros > 0 { // else it is not known
		done.Usage = &u
	}
	if err == nil {
		done.Result, done.Messages = t.result, t.messages
		if len(t.result.Pending) == 0 {
			done.State = t.control.ChangesToStore()
		}
		return done
	}
	done.Result = execution.Result{
		Step: t.result.Step, Agent: t.result.Agent, Iterations: t.result.Iterations, Usage: t.result.Usage,
		Untrusted: t.result.Untrusted,
	}
	done.ErrorType = string(failure.ModeOf(err))
	done.Reason = event.Failed
	if failure.Is(err, failure.UserCancelled, failure.AgentTimeout) {
		done.Reason = event.Interrupted
	}
	return done
}

// says tells what a handler said and changed. A step that decides where to go says nothing.
func (t *turn) says(text string) error {
	if len(t.inv.Step.Routes) > 0 {
		text = ""
	}
	return t.control.EmitChanges(text)
}

// say puts what the agent says into the messages that are stored, and into its own copy of
// the conversation, unless it is there already (CO-28).
func (t *turn) say(text string) error {
	t.control.Conversation.MarkMessagesRead() // results that no model has read are observations all the same
	m := conversation.Assistant(t.agent.Name(), text)
	m.Untrusted = t.control.Turn().Untrusted()
	if !spoken(t.control.Turn().Messages(), text) {
		t.control.Conversation.Append(m)
		if err := t.control.EmitLast(); err != nil {
			return err
		}
	}
	if len(text) > conversation.MaxMessageBytes {
		m.Text = conversation.Cut(text, conversation.MaxMessageBytes)
		if err := t.control.Events.Emit(event.Warning{Reason: ReasonTextCut, Message: fmt.Sprintf(
			"agent %s said more than %d bytes; the rest is cut off", t.agent.Name(), conversation.MaxMessageBytes)}); err != nil {
			return err
		}
	}
	t.messages = append(t.messages, m)
	return nil
}

// spoken reports whether an agent said the text behind the user's last message.
func spoken(messages []conversation.Message, text string) bool {
	for _, m := range slices.Backward(messages) {
		switch {
		case m.Role == conversation.RoleAssistant && m.Text == text:
			return true
		case m.Role == conversation.RoleUser && m.Author == "":
			return false
		}
	}
	return false
}
