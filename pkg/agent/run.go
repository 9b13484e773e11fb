package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
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
// A turn in which tool calls wait for somebody ends with Result.Pending, a sentence that says so
// as its text and its one message, and no changes of state: who has the answers runs the step
// again with them and the same journal, and it goes on from there.
//
// First the handlers of BeforeAgent run, then the agent, then those of AfterAgent and
// OnComplete (AD-3 to AD-14); package hook says when they do not. The error of a model or a
// handler keeps its mode. A step that takes too long is agent_timeout, one whose ctx was
// cancelled user_cancelled. Who stops reading ends the run at once, without a result (AD-10).
func (a *Agent) Run(ctx context.Context, inv Invocation) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		inv := inv // who ranges over it again begins anew
		t := &turn{agent: a, inv: inv, started: time.Now()}
		t.emit = func(e event.Event) error {
			t.note(e)
			t.away = true
			goesOn := yield(e, nil)
			t.away = false
			if !goesOn {
				return errDeaf
			}
			return nil
		}
		if inv.numbers == nil {
			inv.numbers = &hook.Numbers{}
		}
		if inv.count == nil {
			inv.count = &counter{}
		}
		if inv.memory == nil {
			inv.memory = hook.NewMemory(inv.Store, a.Name())
		}
		t.control = hook.New(hook.Start{
			Info: a.info(inv), Handlers: a.handlers, Messages: history(inv.Step), State: a.state, Config: a.shared,
			Memory: inv.memory, Trace: inv.Trace, Numbers: inv.numbers,
			Emit: t.emit,
		})
		t.reads()
		t.inv = inv
		ctx := inv.under(ctx)
		ctx, span := spans.Start(ctx, "invoke_agent "+a.Name(),
			attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.name", a.Name()))
		limited, cancel := context.WithTimeout(ctx, a.config.Timeout)
		defer cancel()
		err := because(limited, t.contained(limited, ctx))
		span(err)
		if errors.Is(err, errDeaf) {
			return
		}
		t.logged(err)
		if done := t.control.Events.Emit(t.outcome(err)); done == nil && err != nil {
			yield(event.Event{}, err)
		}
	}
}

// Execute is Run for who wants the result: events go to emit, but for the last; an error of
// emit ends the run and is returned as it is. A nil emit is for who wants none.
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
		if emit == nil {
			continue
		}
		if err := emit(e); err != nil {
			return done, err
		}
	}
	return done, nil
}

// user is the author of what the user says.
const user = "user"

// errDeaf says that nobody reads events any more.
var errDeaf = errors.New("nobody listens")

// turn is one run under way.
type turn struct {
	agent   *Agent
	inv     Invocation
	control *hook.Control
	started time.Time
	emit    func(event.Event) error
	away    bool // a consumer has an event, whose panics are its own

	tally    tally
	inner    inner        // agents that are its tools
	judged   *float64     // confidence of an agent that this one ran
	written  bool         // to the session log
	text     string       // the answer
	reason   event.Reason // how it came about
	pending  []execution.Pending
	planner  *planner // nil: the step does not plan, or a function does
	tasks    []execution.PlannedTask
	messages []conversation.Message
	result   execution.Result
}

// contained is run, with a panic of the agent's code as its error: such a turn has a last
// event too (CO-49).
func (t *turn) contained(limited, ctx context.Context) (err error) {
	defer func() {
		if t.away {
			return
		}
		if p := recover(); p != nil {
			err = failure.Newf(failure.AgentLogic, "agent.Run", "the code of agent %s failed; the log has the cause", t.agent.Name()).
				Because(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if err = t.run(limited, ctx); err == nil {
		err = t.inv.Step.Budget.Refusal() // whatever its handlers made of it
	}
	return err
}

// because gives an error that comes of the end of ctx the mode of that: code of an author
// may return what its context says.
func because(ctx context.Context, err error) error {
	switch ended := ctx.Err(); {
	case ended == nil || !errors.Is(err, ended) || failure.Is(err, failure.AgentTimeout, failure.UserCancelled):
		return err
	case errors.Is(ended, context.DeadlineExceeded):
		return failure.New(failure.AgentTimeout, "agent.Run", "the agent took longer than it may; raise its limits.timeout, or ask for less").Because(err)
	default:
		return failure.New(failure.UserCancelled, "agent.Run", "the step was cancelled").Because(err)
	}
}

// run is everything but the last event.
func (t *turn) run(limited, ctx context.Context) error {
	if t.inv.branch == "" {
		asked := event.UserInput{Turn: t.inv.Step.Turn, Prompt: prompted(t.inv.Step)}
		if err := t.control.Events.Forward(event.Event{Author: user, Payload: asked}); err != nil {
			return err
		}
	}
	said, err := t.control.Handlers.BeforeAgent(limited)
	if err != nil {
		return err
	}
	if err := t.says(said); err != nil {
		return err
	}
	if t.control.Progress.Ended() {
		t.text, t.reason = said, event.Natural
		if said == "" {
			t.reason = event.Stopped
		}
		if err := t.conclude(nil); err != nil {
			return err
		}
		return t.control.EmitChanges("")
	}
	err = t.main(limited)
	if refused := t.inv.Step.Budget.Refusal(); refused != nil && ctx.Err() == nil && !errors.Is(err, errDeaf) {
		return refused
	}
	if err != nil && (errors.Is(err, errDeaf) || ctx.Err() != nil || lost(err) || !t.agent.forgives() || len(t.inv.Step.Routes) > 0) {
		return err
	}
	if err == nil && len(t.pending) > 0 {
		return t.wait(limited)
	}
	if err := t.conclude(err); err != nil {
		return err
	}
	if !t.completes() {
		return t.control.EmitChanges("")
	}
	if said, err = t.control.Handlers.AfterAgent(limited); err != nil {
		return err
	}
	if err := t.says(said); err != nil {
		return err
	}
	if said != "" && len(t.inv.Step.Routes) == 0 {
		if err := t.say(said); err != nil {
			return err
		}
	}
	if t.control.Progress.Ended() {
		return nil
	}
	if err := t.control.Handlers.OnComplete(limited, t.complete()); err != nil {
		return err
	}
	return t.control.EmitChanges("")
}

// completes reports whether the turn has an answer that AfterAgent and OnComplete are for
// (C-12).
func (t *turn) completes() bool {
	return !t.control.Progress.Ended() && (t.reason == event.Natural || t.reason == event.MaxIterations || t.reason == event.InputRequired)
}

// main runs what the agent is: its function, or the loop around its model.
func (t *turn) main(ctx context.Context) error {
	ctx = context.WithValue(ctx, turnKey{}, t)
	hand := t.pass
	var events iter.Seq2[event.Event, error]
	if t.agent.config.Run != nil {
		if err := t.control.Handlers.AfterUserInput(ctx); err != nil {
			return err
		}
		if t.control.Progress.Ended() {
			t.reason = event.Stopped
			return nil
		}
		if why := t.control.Progress.StopReason(); why != "" {
			t.text, t.reason = "The turn was stopped: "+why, event.Stopped
			return t.control.Handlers.OnStopSignal(ctx)
		}
		hand = t.relay
		events = t.agent.config.Run(ctx, t.inv.below(t.agent))
	} else {
		system, told, err := t.agent.instructions.resolve(ctx, t.control.Turn(), t.inv.Step.History)
		if err != nil {
			return err
		}
		if err := t.lead(told); err != nil {
			return err
		}
		l := t.loop()
		if l.Tools, err = t.offered(l.Tools); err != nil {
			return err
		}
		events = l.Run(ctx, t.input(system))
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		if err := hand(e); err != nil {
			return err
		}
	}
	if t.reason == "" {
		t.reason = event.Natural
	}
	if t.agent.config.Run != nil && t.reason == event.Stopped && !t.control.Progress.Ended() { // the loop runs them itself
		return t.control.Handlers.OnStopSignal(ctx)
	}
	return nil
}

// pass hands on an event of the loop, and notes what it says of the answer.
func (t *turn) pass(e event.Event) error {
	if done, ok := e.Payload.(event.ToolFinished); ok && t.planner.heard(done) {
		return t.emit(e) // it is no tool of the agent, and found nothing
	}
	t.tally.note(e)
	switch p := e.Payload.(type) {
	case event.TextDelta:
		if len(t.inv.Step.Routes) > 0 {
			return nil // the name of a route is no part of the answer
		}
	case event.Answer:
		t.text, t.reason, t.pending = p.Text, p.Reason, p.Pending
	case event.ToolFinished:
		t.control.Progress.AddUsage(t.inner.take(), true)
	}
	return t.emit(e) // the loop told the control already
}

// loop is the loop of the agent.
func (t *turn) loop() loop.Loop {
	c := t.agent.config
	l := loop.Loop{
		Model: c.Model, Tools: t.agent.tools, MaxIterations: c.MaxIterations, MaxFailures: c.MaxFailures, Parallel: c.Parallel,
		Guard: c.Guard.Stricter(t.inv.guard),
	}
	if t.inv.MaxIterations > 0 {
		l.MaxIterations = t.inv.MaxIterations
	}
	return l
}

// input is what the loop is given.
func (t *turn) input(system string) loop.Input {
	apart := t.inv.apart || t.inv.Step.Silent // a turn that breaks off leaves nothing of it in the session
	calls := &calls{
		Journal: t.inv.Step.Journal, count: t.inv.count, turnID: t.inv.Step.CallTurn(), turn: t.inv.Step.Turn, step: t.inv.Step.Number, apart: apart,
	}
	in := loop.Input{
		System: system, Turn: t.control, Choices: t.inv.Step.Routes, Only: t.allowed(),
		Key: calls.key, Keep: t.inv.branch != "", Apart: apart, Stop: t.inv.Stop,
		ID: calls.id, Agent: t.inv.Step.Agent, Answers: t.inv.Step.Answers, Broker: t.inv.Step.Broker, Budget: t.inv.Step.Budget,
	}
	if calls.Journal != nil {
		in.Journal, in.Recorded = calls.seen(), t.inv.Step.Recorded
	}
	return in
}
