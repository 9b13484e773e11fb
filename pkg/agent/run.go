package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/loop"
)

// Reasons of the warnings that an agent gives, beside those of the loop.
const (
	ReasonTextCut  = "TEXT_CUT"      // what the agent said was longer than a message may be
	ReasonDegraded = "STEP_DEGRADED" // the step failed and its policy made a result of that
)

// Run executes one step. Its events come in order, and the last one is always exactly one
// event.TurnResult, which has the result, the messages to commit and the changes of state
// (CO-49); an error follows it. What is committed of the messages is what the agent said
// last (RA-16); tool rounds stay inside the step. A step that decides where to go
// (step.Routes) has no text and no message, and NextAgent is empty when the model named none
// of the routes.
//
// First the handlers of BeforeAgent run, then the agent, then those of AfterAgent and
// OnComplete (AD-3 to AD-14); package hook says when they do not. The error of a model or a
// handler keeps its mode. A step that takes too long is agent_timeout, one whose ctx was
// cancelled user_cancelled. Who stops reading ends the run at once, without a result (AD-10).
func (a *Agent) Run(ctx context.Context, inv Invocation) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		t := &turn{agent: a, inv: inv, started: time.Now()}
		t.emit = func(e event.Event) error {
			t.note(e)
			if !yield(e, nil) {
				return errDeaf
			}
			return nil
		}
		if inv.numbers == nil {
			inv.numbers = &hook.Numbers{}
		}
		if inv.memory == nil {
			inv.memory = hook.NewMemory(inv.Store, a.Name())
		}
		t.control = hook.New(hook.Start{
			Info: a.info(inv), Handlers: a.handlers, Messages: history(inv.Step), State: a.state,
			Memory: inv.memory, Trace: inv.Trace, Numbers: inv.numbers,
			Emit: t.emit,
		})
		t.inv = inv
		limited, cancel := context.WithTimeout(ctx, a.config.Timeout)
		defer cancel()
		err := t.run(limited, ctx)
		if errors.Is(err, errDeaf) {
			return
		}
		t.logged(err)
		if done := t.control.Emit(t.outcome(err)); done == nil && err != nil {
			yield(event.Event{}, err)
		}
	}
}

// Execute is Run for who wants the result: events go to emit, but for the last; an error of
// emit ends the run and is returned as it is.
func (a *Agent) Execute(ctx context.Context, inv Invocation, emit func(event.Event) error) (event.TurnResult, error) {
	var done event.TurnResult
	for e, err := range a.Run(ctx, inv) {
		if err != nil {
			return done, err
		}
		if result, ok := e.Payload.(event.TurnResult); ok {
			done = result
			continue
		}
		if err := emit(e); err != nil {
			return done, err
		}
	}
	return done, nil
}

// errDeaf says that nobody reads events any more.
var errDeaf = errors.New("nobody listens")

// turn is one run under way.
type turn struct {
	agent   *Agent
	inv     Invocation
	control *hook.Control
	started time.Time
	emit    func(event.Event) error

	tally    tally
	written  bool         // to the session log
	text     string       // the answer
	reason   event.Reason // how it came about
	messages []conversation.Message
	result   execution.Result
}

// run is everything but the last event.
func (t *turn) run(limited, ctx context.Context) error {
	if t.inv.branch == "" {
		if err := t.control.Emit(event.UserInput{Turn: t.inv.Step.Turn, Prompt: prompted(t.inv.Step)}); err != nil {
			return err
		}
	}
	said, err := t.control.BeforeAgent(limited)
	if err != nil {
		return err
	}
	if err := t.control.Changes(said); err != nil {
		return err
	}
	if t.control.Ended() {
		t.text, t.reason = said, event.Natural
		return t.conclude(nil)
	}
	err = t.main(limited)
	if err != nil && (errors.Is(err, errDeaf) || ctx.Err() != nil || lost(err) || !t.agent.forgives() || len(t.inv.Step.Routes) > 0) {
		return err
	}
	if err := t.conclude(err); err != nil {
		return err
	}
	if !t.completes() {
		return t.control.Changes("")
	}
	if said, err = t.control.AfterAgent(limited); err != nil {
		return err
	}
	if err := t.control.Changes(said); err != nil {
		return err
	}
	if said != "" {
		t.messages = append(t.messages, conversation.Assistant(t.agent.Name(), said))
	}
	return t.control.OnComplete(limited, t.complete())
}

// completes reports whether the turn has an answer that AfterAgent and OnComplete are for
// (C-12).
func (t *turn) completes() bool {
	return !t.control.Ended() && (t.reason == event.Natural || t.reason == event.MaxIterations || t.reason == event.InputRequired)
}

// main runs what the agent is: its function, or the loop around its model.
func (t *turn) main(ctx context.Context) error {
	var events iter.Seq2[event.Event, error]
	if t.agent.config.Run != nil {
		if err := t.control.AfterUserInput(ctx); err != nil {
			return err
		}
		events = t.agent.config.Run(ctx, t.inv)
	} else {
		system, err := t.agent.instructions.resolve(ctx, t.control.Turn().Memory())
		if err != nil {
			return err
		}
		events = t.loop().Run(ctx, t.input(system))
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		if err := t.pass(e); err != nil {
			return err
		}
		if t.control.Ended() && t.agent.config.Run != nil {
			break
		}
	}
	if t.reason == "" {
		t.reason = event.Natural
	}
	return nil
}

// pass hands an event on, and notes what it says of the answer.
func (t *turn) pass(e event.Event) error {
	t.tally.note(e)
	switch p := e.Payload.(type) {
	case event.TextDelta:
		if len(t.inv.Step.Routes) > 0 {
			return nil // the name of a route is no part of the answer
		}
	case event.Answer:
		t.text, t.reason = p.Text, p.Reason
	case event.Message:
		if t.agent.config.Run != nil && p.Text != "" {
			t.text = p.Text
		}
	}
	if t.agent.config.Run == nil {
		return t.emit(e) // the loop told the control already
	}
	return t.control.Pass(e)
}

// conclude makes the result of what was said, or of a failure that the agent forgives.
func (t *turn) conclude(cause error) error {
	a, step := t.agent, t.inv.Step
	if len(step.Routes) > 0 {
		t.result.NextAgent = choose(step.Routes, t.text)
		t.text = ""
		return nil
	}
	if cause == nil && strings.TrimSpace(t.text) == "" && !t.control.Ended() {
		cause = failure.Newf(failure.AgentLogic, "agent.Run", "the model of agent %s gave an empty answer", a.Name())
		if !a.forgives() {
			return cause
		}
	}
	t.result.InputRequired = a.config.AsksUser || t.reason == event.InputRequired
	t.result.ToolsCalled = toolsCalled(t.tally.calls)
	t.result.Observations = observations(t.tally.calls)
	t.result.MaxIterations = t.reason == event.MaxIterations
	t.result.Confidence = confidence(step, t.result.Observations)
	if cause != nil {
		t.reason = event.Natural
		if err := t.degrade(cause); err != nil {
			return err
		}
	}
	if len(t.text) > conversation.MaxMessageBytes {
		t.text = conversation.Cut(t.text, conversation.MaxMessageBytes)
		if err := t.control.Emit(event.Warning{Reason: ReasonTextCut, Message: fmt.Sprintf(
			"agent %s said more than %d bytes; the rest is cut off", a.Name(), conversation.MaxMessageBytes)}); err != nil {
			return err
		}
	}
	if a.config.OutputKey != "" && t.text != "" {
		if err := t.control.Turn().Memory().Set(a.config.OutputKey, t.text); err != nil {
			return err
		}
	}
	if t.text != "" {
		t.messages = []conversation.Message{conversation.Assistant(a.Name(), t.text)}
	}
	t.result.Text = t.text
	return nil
}

// outcome is the last event: what the turn led to, or what it failed with.
func (t *turn) outcome(err error) event.TurnResult {
	t.result.Step, t.result.Agent = t.inv.Step.Number, t.agent.Name()
	t.result.Iterations, t.result.Usage = t.tally.iterations, t.tally.usage
	if t.agent.config.Run == nil { // a call that failed has no event, and consumed all the same
		t.result.Iterations, t.result.Usage = t.control.Turn().Iteration(), t.control.Turn().Usage()
	}
	done := event.TurnResult{Turn: t.inv.Step.Turn, Reason: t.reason, Duration: time.Since(t.started)}
	if u := t.result.Usage; u.ModelCalls > 0 {
		done.Usage = &u
	}
	if err == nil {
		done.Result, done.Messages, done.State = t.result, t.messages, t.control.Lasting()
		return done
	}
	done.Result = execution.Result{Step: t.result.Step, Agent: t.result.Agent, Iterations: t.result.Iterations, Usage: t.result.Usage}
	done.ErrorType = string(failure.ModeOf(err))
	done.Reason = event.Failed
	if failure.Is(err, failure.UserCancelled, failure.AgentTimeout) {
		done.Reason = event.Interrupted
	}
	return done
}

// loop is the loop of the agent.
func (t *turn) loop() loop.Loop {
	c := t.agent.config
	l := loop.Loop{Model: c.Model, Tools: t.agent.tools, MaxIterations: c.MaxIterations, MaxFailures: c.MaxFailures, Parallel: c.Parallel}
	if t.inv.MaxIterations > 0 {
		l.MaxIterations = t.inv.MaxIterations
	}
	return l
}

// input is what the loop is given.
func (t *turn) input(system string) loop.Input {
	return loop.Input{
		System: system, Turn: t.control, Choices: t.inv.Step.Routes,
		Journal: t.inv.Step.Journal, Key: t.inv.idempotency, Stop: t.inv.Stop,
	}
}
