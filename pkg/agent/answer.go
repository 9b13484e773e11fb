package agent

import (
	"context"
	"iter"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/agent/internal/planning"
	"github.com/troupe-dev/troupe/pkg/agent/internal/result"
	"github.com/troupe-dev/troupe/pkg/agent/internal/scope"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// answer collects what the agent produced. conclude turns it into the result of the step.
type answer struct {
	text       string
	reason     event.Reason
	pending    []execution.Pending
	tasks      []execution.PlannedTask
	confidence *float64     // confidence of an agent that this agent ran
	incomplete event.Finish // why the text may be incomplete (empty means it is complete)
}

// runAgent runs the agent's function, or the loop around its model. The outcome is in t.answer.
func (t *turn) runAgent(ctx context.Context) error {
	ctx = scope.WithRun(ctx, t.scopeRun)
	if t.agent.config.Run != nil {
		return t.runFunction(ctx)
	}
	return t.runLoop(ctx)
}

// runFunction runs the agent's own Run function in place of a model.
func (t *turn) runFunction(ctx context.Context) error {
	if err := t.control.Handlers.AfterUserInput(ctx); err != nil {
		return err
	}
	if t.control.Progress.Ended() {
		t.answer.reason = event.Stopped
		return nil
	}
	if why := t.control.Progress.StopReason(); why != "" {
		t.answer.text, t.answer.reason = "The turn was stopped: "+why, event.Stopped
		return t.control.Handlers.OnStopSignal(ctx)
	}
	if err := t.handleEvents(t.agent.config.Run(ctx, t.inv.forFunction(t.agent)), t.handleFunctionEvent); err != nil {
		return err
	}
	if t.answer.reason == event.Stopped && !t.control.Progress.Ended() { // the loop would have run these handlers itself
		return t.control.Handlers.OnStopSignal(ctx)
	}
	return nil
}

// runLoop fills in the instructions and runs the loop around the agent's model.
func (t *turn) runLoop(ctx context.Context) error {
	conversation := t.control.Turn()
	system, first, err := t.agent.instructions.Resolve(ctx, conversation, t.inv.Step.History)
	if err != nil {
		return err
	}
	if len(first) > 0 {
		if err := conversation.Replace(append(first, conversation.Messages()...)); err != nil {
			return err
		}
	}
	t.planner = planning.New(t.inv.Step.Plan)
	l := t.agent.newLoop(t.inv)
	if l.Tools, err = t.planner.AppendTool(l.Tools); err != nil {
		return err
	}
	return t.handleEvents(l.Run(ctx, t.loopInput(system)), t.handleLoopEvent)
}

// handleEvents passes all events of the agent to handle. Without another reason, the answer's reason is Natural.
func (t *turn) handleEvents(events iter.Seq2[event.Event, error], handle func(event.Event) error) error {
	for e, err := range events {
		if err != nil {
			return err
		}
		if err := handle(e); err != nil {
			return err
		}
	}
	if t.answer.reason == "" {
		t.answer.reason = event.Natural
	}
	return nil
}

// handleLoopEvent emits an event of the loop and copies the answer from it.
func (t *turn) handleLoopEvent(e event.Event) error {
	if done, ok := e.Payload.(event.ToolFinished); ok && t.planner.RecordCall(done) {
		return t.emit(e) // the planner's tool is not one of the agent's and adds no observation
	}
	t.tally.AddEvent(e)
	switch p := e.Payload.(type) {
	case event.TextDelta:
		if len(t.inv.Step.Routes) > 0 {
			return nil // the name of a route is not part of the answer
		}
	case event.Answer:
		t.answer.text, t.answer.reason, t.answer.pending, t.answer.incomplete = p.Text, p.Reason, p.Pending, p.Incomplete
	case event.ToolFinished:
		t.control.Progress.AddUsage(t.scopeRun.TakeUsage(), true)
	}
	return t.emit(e) // the loop has passed the event to the control already
}

// newLoop returns the loop that runs the agent's model and tools.
func (a *Agent) newLoop(inv Invocation) loop.Loop {
	c := a.config
	l := loop.Loop{
		Model: c.Model, Tools: a.tools, MaxIterations: c.MaxIterations, MaxFailures: c.MaxFailures, Parallel: c.Parallel,
		Guard: c.Guard.Stricter(inv.scope.Guard),
	}
	if inv.MaxIterations > 0 {
		l.MaxIterations = inv.MaxIterations
	}
	return l
}

// loopInput returns the input of the loop, with system as the system prompt.
func (t *turn) loopInput(system string) loop.Input {
	s, in := t.inv.Step, t.inv.scope
	t.log.systemPrompt = system
	isSilent := in.IsSilent || s.Silent // nothing of it stays in the session if the turn breaks off
	journal := scope.NewJournal(s, in.Calls, isSilent)
	input := loop.Input{
		System: system, Control: t.control, Choices: s.Routes, AllowedTools: t.planner.AllowedTools(s.Tools),
		IdempotencyKey: journal.Key, RecordFinalReply: in.Branch != "", RecordAllSideCalls: isSilent, Stop: t.inv.Stop,
		CallID: journal.ID, Agent: s.Agent, Answers: s.Answers, Broker: s.Broker, Budget: s.Budget,
	}
	if s.Journal != nil {
		input.Journal, input.RecordForReplay = journal.ForLoop(), s.Recorded
	}
	return input
}

// handleFunctionEvent emits an event from the agent's function and copies the answer from it. The result of
// another agent is added to the usage. It is not emitted again.
func (t *turn) handleFunctionEvent(e event.Event) error {
	isOwn := e.Author == "" || e.Author == t.agent.Name()
	if isOwn {
		t.tally.AddEvent(e)
	}
	switch p := e.Payload.(type) {
	case event.UserInput:
		return nil
	case event.TurnResult:
		t.addResult(p, isOwn)
		return nil
	case event.TextDelta:
		if len(t.inv.Step.Routes) > 0 {
			return nil // the name of a route is not part of the answer
		}
	case event.Answer:
		t.answer = answer{text: p.Text, reason: p.Reason, pending: p.Pending, tasks: p.Tasks, incomplete: p.Incomplete}
	case event.Message:
		if p.Text != "" {
			t.answer.text = p.Text
		}
		if isOwn && p.Escalate {
			t.control.Turn().Escalate()
		}
		if isOwn {
			if err := result.ApplyState(t.control.Turn(), t.agent.Name(), p.State); err != nil {
				return err
			}
		}
	}
	return t.control.Events.Forward(e)
}

// addResult adds the result of an agent that the function ran. If the function yields a result of its own, that
// result is already the sum of the others.
func (t *turn) addResult(done event.TurnResult, isOwn bool) {
	if isOwn {
		t.tally = result.Tally{}
	}
	t.control.Conversation.AddSource(done.Result.Untrusted)
	t.tally.AddResult(done.Result)
	if done.Reason == event.Failed || done.Reason == event.Interrupted {
		return
	}
	if done.Result.Text != "" {
		t.answer.text = done.Result.Text
	}
	if done.Result.NextAgent != "" {
		t.answer.text = done.Result.NextAgent
	}
	t.answer.reason, t.answer.pending, t.answer.tasks = done.Reason, done.Result.Pending, done.Result.Tasks
	switch {
	case done.Result.InputRequired:
		t.answer.reason = event.InputRequired
	case done.Ended:
		t.answer.reason = event.Natural
	}
	t.answer.confidence, t.answer.incomplete = done.Result.Confidence, event.Finish(done.Result.Incomplete)
	if done.Escalate {
		t.control.Turn().Escalate()
	}
}
