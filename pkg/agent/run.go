package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/pkg/agent/internal/briefing"
	"github.com/troupe-dev/troupe/pkg/agent/internal/planning"
	"github.com/troupe-dev/troupe/pkg/agent/internal/result"
	"github.com/troupe-dev/troupe/pkg/agent/internal/scope"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Run executes one step. Its events come in order. The last one is always exactly one event.TurnResult, with the result,
// the messages to commit and the changes of state (CO-49). An error follows it. Of the messages only what the agent said
// last is committed (RA-16); tool rounds stay inside the step. A step that chooses a route (step.Routes) has no text and
// no message. Its NextAgent is empty when the model named none of the routes.
//
// A turn in which tool calls wait ends with Result.Pending. Its text and its one message say so, and it changes no state.
// When the answers are there, the caller runs the step again with them and the same journal, and the step continues from
// there.
//
// First the handlers of BeforeAgent run, then the agent, then the handlers of AfterAgent and OnComplete (AD-3 to AD-14); package
// hook says when they do not. The error of a model or a handler keeps its mode. A step that takes too long fails with
// agent_timeout, a step whose ctx was cancelled with user_cancelled. A caller that stops reading ends the run at once, without a result (AD-10).
func (a *Agent) Run(ctx context.Context, inv Invocation) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		t, ctx := a.newTurn(ctx, inv, yield)
		ctx, span := spans.Start(ctx, "invoke_agent "+a.Name(),
			attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.name", a.Name()))
		limited, cancel := context.WithTimeout(ctx, a.config.Timeout)
		defer cancel()
		t.control.BeginEvents(limited)
		err := t.endRun(limited, result.WithCause(limited, t.runContained(limited, ctx)))
		span(err)
		if errors.Is(err, errReaderStopped) {
			return
		}
		t.log.writeTurn(t, err)
		if err != nil {
			_ = t.control.Events.Emit(result.NewErrorEvent(err)) // the next Emit fails, too
		}
		if done := t.control.Events.Emit(t.lastEvent(err)); done == nil && err != nil {
			yield(event.Event{}, err)
		}
	}
}

// Execute runs a step and returns its result. All events but the last go to emit (nil drops them). An error of emit ends
// the run and is returned as it is.
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

// userAuthor is the author of events with the user's input.
const userAuthor = "user"

// errReaderStopped reports that the reader of the events has stopped.
var errReaderStopped = errors.New("the reader of the events has stopped")

// turn is one run of an agent, from its first event to its last.
type turn struct {
	agent          *Agent
	inv            Invocation
	control        *hook.Control
	scopeRun       *scope.Run // what agents inside this one need to know about it
	log            *turnLog
	started        time.Time
	emit           func(event.Event) error
	isReaderActive bool // the reader handles an event; its panics are not the agent's

	tally   result.Tally
	planner *planning.Planner // (nil when the step does not plan, or a function does)
	answer  answer
	output  output
}

// newTurn returns a run of the agent that has not begun, and its context.
func (a *Agent) newTurn(ctx context.Context, inv Invocation, yield func(event.Event, error) bool) (*turn, context.Context) {
	ctx, placed := scope.TakeScope(ctx)
	if placed != nil {
		inv.scope = *placed
	}
	inv.scope = inv.scope.WithDefaults(a.Name(), inv.Store)
	t := &turn{agent: a, inv: inv, started: time.Now(), log: newTurnLog(a)}
	t.scopeRun = &scope.Run{
		Scope: inv.scope.ForChildren(a.Name(), a.config.Guard), Step: inv.Step, Store: inv.Store, Trace: inv.Trace, Stop: inv.Stop,
	}
	t.emit = func(e event.Event) error {
		t.log.writeEvent(t, e)
		t.isReaderActive = true
		more := yield(e, nil)
		t.isReaderActive = false
		if !more {
			return errReaderStopped
		}
		return nil
	}
	t.control = hook.New(hook.Start{
		Info: inv.info(a), Handlers: a.handlers, Messages: briefing.History(inv.Step, briefing.RoundTokens(a.config.Model, inv.Step)),
		State: a.state, Config: a.sharedConfig, Memory: inv.scope.Memory, Trace: inv.Trace, Numbers: inv.scope.Numbers,
		Emit: t.emit,
	})
	t.control.Conversation.AddMessageSources() // they count as input of the step, even if no model reads all of them
	for _, r := range inv.Step.Prior {
		t.control.Conversation.AddSource(r.Untrusted)
	}
	return t, briefing.WithExecution(ctx, inv.Step)
}

// runContained runs the turn and returns a panic in the agent's code as an error, because such a turn also needs a
// last event (CO-49).
func (t *turn) runContained(limited, ctx context.Context) (err error) {
	defer func() {
		if t.isReaderActive {
			return
		}
		if p := recover(); p != nil {
			err = failure.Newf(failure.AgentLogic, "agent.Run", "the code of agent %s failed; the log has the cause", t.agent.Name()).
				Because(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if err = t.runPhases(limited, ctx); err == nil {
		err = t.inv.Step.Budget.Rejection() // even if a handler replaced this error
	}
	return err
}

// runPhases runs the turn up to its last event: the handlers before the agent, the agent, its conclusion, and the
// handlers after it. limited has the timeout of the agent; ctx does not.
func (t *turn) runPhases(limited, ctx context.Context) error {
	if err := briefing.LoadFiles(limited, t.control.Turn().Memory(), t.control.Conversation.FilesToLoad()); err != nil {
		return err
	}
	ended, err := t.runBeforeHandlers(limited)
	if ended || err != nil {
		return err
	}
	err = t.runAgent(limited)
	if refused := t.inv.Step.Budget.Rejection(); refused != nil && ctx.Err() == nil && !errors.Is(err, errReaderStopped) {
		return refused
	}
	if err != nil && (ctx.Err() != nil || !t.isForgivable(err)) {
		return err
	}
	if err == nil && len(t.answer.pending) > 0 {
		return t.concludeWaiting(limited)
	}
	if err := t.conclude(err); err != nil {
		return err
	}
	return t.runAfterHandlers(limited)
}

// runBeforeHandlers runs the handlers before the agent. It reports true if one of them ended the turn.
func (t *turn) runBeforeHandlers(ctx context.Context) (ended bool, err error) {
	reply := ""
	if t.inv.scope.Branch == "" { // no other agent runs this one
		if reply, err = t.beginRun(ctx); err != nil {
			return false, err
		}
	}
	if reply == "" && !t.control.Progress.Ended() {
		if reply, err = t.control.Handlers.BeforeAgent(ctx); err != nil {
			return false, err
		}
	}
	if err := t.emitReply(reply); err != nil {
		return false, err
	}
	if !t.control.Progress.Ended() {
		return false, nil
	}
	t.answer.text, t.answer.reason = reply, event.Natural
	if reply == "" {
		t.answer.reason = event.Stopped
	}
	if err := t.conclude(nil); err != nil {
		return true, err
	}
	return true, t.control.EmitChanges("")
}

// runAfterHandlers runs the AfterAgent and OnComplete handlers if the turn has a final answer (C-12).
func (t *turn) runAfterHandlers(ctx context.Context) error {
	if !t.hasFinalAnswer() {
		return t.control.EmitChanges("")
	}
	reply, err := t.control.Handlers.AfterAgent(ctx)
	if err != nil {
		return err
	}
	if err := t.emitReply(reply); err != nil {
		return err
	}
	if reply != "" && len(t.inv.Step.Routes) == 0 {
		if err := t.addReply(reply); err != nil {
			return err
		}
	}
	if t.control.Progress.Ended() {
		return nil
	}
	t.log.writeTurn(t, nil) // before OnComplete (CO-53)
	done := &hook.Completion{Turn: t.control.Turn(), Result: t.answer.text, Reason: t.answer.reason, Duration: time.Since(t.started)}
	if err := t.control.Handlers.OnComplete(ctx, done); err != nil {
		return err
	}
	return t.control.EmitChanges("")
}

// hasFinalAnswer reports whether the turn ended with an answer, so that AfterAgent and OnComplete run.
func (t *turn) hasFinalAnswer() bool {
	r := t.answer.reason
	return !t.control.Progress.Ended() && (r == event.Natural || r == event.MaxIterations || r == event.InputRequired)
}

// emitReply emits a handler's reply together with the changes of state. A step that chooses a route emits no text.
func (t *turn) emitReply(text string) error {
	if len(t.inv.Step.Routes) > 0 {
		text = ""
	}
	return t.control.EmitChanges(text)
}
