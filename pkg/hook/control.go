package hook

import (
	"context"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Control changes a Turn on behalf of the runtime. Package agent creates it and package loop uses it. Handlers
// never get one.
type Control struct {
	Handlers     *runner
	Conversation *conversationState
	Events       *eventStream
	Progress     *progressState

	turn *Turn
}

// Package loop changes these parts of a turn. Handlers read them through Turn.
type (
	conversationState = turnstate.Conversation
	eventStream       = turnstate.Events
	progressState     = turnstate.Progress
)

// Numbers assigns the sequence numbers of the events of an invocation. It is safe for concurrent use.
type Numbers = turnstate.Numbers

// Start holds the initial data of a turn. All fields are optional.
type Start struct {
	Info     Info
	Handlers *Set
	Messages []conversation.Message // oldest first; never modified
	State    *ownership.AgentState
	Config   *ownership.Config
	Memory   *Memory
	Trace    ownership.TraceView
	// Emit receives every event, in order. Its error is returned to the code that caused the event.
	Emit func(event.Event) error
	// Numbers assigns the sequence numbers of events. The agents of a flow share it (nil starts at 1).
	Numbers *Numbers
}

// New returns the Control of a turn that has not begun.
func New(s Start) *Control {
	t := &Turn{
		info: s.Info, state: s.State, config: s.Config, memory: s.Memory, trace: s.Trace,
		conversation: turnstate.NewConversation(s.Messages), progress: &turnstate.Progress{},
		events: turnstate.NewEvents(turnstate.Origin{
			TurnID: s.Info.TurnID, Step: s.Info.Step, Agent: s.Info.Agent, Branch: s.Info.Branch,
		}, s.Numbers, s.Emit),
	}
	if t.state == nil {
		t.state = ownership.NewAgentState(s.Info.Agent, nil, nil)
	}
	if t.memory == nil {
		t.memory = NewMemory(nil, s.Info.Agent)
	}
	if t.config == nil {
		t.config = ownership.NewConfig(s.Info.Agent, "")
	}
	t.state, t.config = t.state.WithRejectionHandler(t.events.AddViolation), t.config.WithRejectionHandler(t.events.AddViolation)
	setViolationHandler(t.memory, t.events.AddViolation)
	t.memory.artifacts.SetReporter(t.events.AddArtifactUpdate)
	set := s.Handlers
	if set == nil {
		set = &Set{}
	}
	return &Control{Handlers: &runner{t, set}, Conversation: t.conversation, Events: t.events, Progress: t.progress, turn: t}
}

// Turn returns the view of the turn for handlers.
func (c *Control) Turn() *Turn { return c.turn }

// BeginEvents runs the OnEvent handlers for all events from now on, until EndEvents.
func (c *Control) BeginEvents(ctx context.Context) {
	if len(c.Handlers.set.run.onEvent) > 0 {
		c.Events.SetInterceptor(func(e event.Event) (event.Payload, error) { return c.Handlers.OnEvent(ctx, e) })
	}
}

// EmitLast emits the last message of the conversation.
func (c *Control) EmitLast() error {
	return c.Events.Emit(event.MessageAppended{Message: c.Conversation.LastMessage()})
}

// SetAsk sets the function behind Turn.Ask.
func (c *Control) SetAsk(ask func(context.Context, llm.Request) (conversation.Message, error)) {
	c.turn.ask = ask
}

// MissingLogin returns the credential that the call is waiting for, or nil if it lacks none.
func (c *Control) MissingLogin(call *Call) *execution.Login { return call.wait.MissingLogin }

// SetWait prepares a call before its handlers run. It sets whether the call may wait, whether it waited or ran in
// an earlier attempt, and the answer that this turn brought.
func (c *Control) SetWait(call *Call, allowed, passed bool, answer execution.Answer) {
	call.wait = turnstate.CallWait{CanContinue: allowed, WaitedOrRan: passed, Answer: answer}
}
