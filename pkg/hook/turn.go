package hook

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Info says which turn it is and who works in it (AD-15).
type Info struct {
	Agent   string
	Model   string // its full name; empty for an agent that has none
	Context int64  // tokens that the model reads; 0: llm.DefaultContext
	Session string
	User    string // whose session it is; empty: nobody's
	TurnID  string // the same in all attempts
	TraceID string
	Turn    int      // in the session, from 1
	Step    int      // in the turn, from 1
	Attempt int      // from 1
	Branch  string   // the agents above this one in a flow, and itself
	Prompt  string   // what the user said
	Routes  []string // agents that the step decides between; what it says is no answer then
}

// Turn is what a handler sees of the turn under way, and what it may do to it. Handlers use
// it while they run, and not from other goroutines.
type Turn struct {
	info   Info
	state  *ownership.AgentState
	config *ownership.Config
	memory *Memory
	trace  ownership.TraceView

	messages  []conversation.Message
	holding   bool
	held      []conversation.Message // what was added meanwhile
	round     []conversation.ToolCall
	pending   *conversation.ToolCall
	iteration int
	tools     []string // that ran so far
	usage     execution.Usage
	context   int64 // tokens of the last request

	entries []event.Event
	emit    func(event.Event) error
	away    bool  // who reads has an event
	deaf    error // why nobody hears events any more
	numbers *Numbers
	ask     func(context.Context, llm.Request) (conversation.Message, error)
	stop    string // why the turn is to stop; empty: it goes on
	ended   bool

	escalated atomic.Bool // tools may do so beside each other
	refused   refused

	read untrusted
}

// Info says which turn it is.
func (t *Turn) Info() Info { return t.info }

// Iteration is the number of the iteration under way, from 1; 0 before the first.
func (t *Turn) Iteration() int { return t.iteration }

// Messages are those that the model sees next, oldest first, without the system prompt. Do
// not change them: Add and Replace do.
func (t *Turn) Messages() []conversation.Message { return slices.Clip(t.messages) }

// Add says something in the conversation as the model sees it. In a tool round, and where the
// model has asked for one, the message waits until the last tool has answered, and comes
// before those of AfterTools: nothing may stand between a call and its results (C-11, CO-33).
// What is added is not stored with the session; use Memory for what is to last.
func (t *Turn) Add(messages ...conversation.Message) {
	if t.holding {
		t.held = append(t.held, messages...)
		return
	}
	t.messages = append(t.messages, messages...)
}

// Replace puts other messages in the place of all that the model would see: a compaction.
// Modes: agent_logic in a tool round, and when calls and results do not stand together.
func (t *Turn) Replace(messages []conversation.Message) error {
	if len(t.round) > 0 {
		return failure.New(failure.AgentLogic, "hook.Replace", "messages cannot be replaced in a tool round; do it in BeforeLLM or AfterTools")
	}
	if err := conversation.CheckRounds(messages); err != nil {
		return failure.New(failure.AgentLogic, "hook.Replace", err.Error())
	}
	t.messages = slices.Clone(messages)
	return nil
}

// State is the agent's own (the AGENT tier): it lives as long as the agent runs, and all its
// turns share it. It is the same between handlers and tools.
func (t *Turn) State() *ownership.AgentState { return t.state }

// Config is the agent's configuration (the SHARED tier): all its instances share it, each as it was
// when it started, with the changes that it made since.
func (t *Turn) Config() *ownership.Config { return t.config }

// Memory is the session's state, artifacts and past (the MEMORY tier): to be read, and to be
// changed by asking.
func (t *Turn) Memory() *Memory { return t.memory }

// Trace is what the orchestrator told of the trace (the ORCHESTRATOR tier): to be read.
func (t *Turn) Trace() ownership.TraceView { return t.trace }

// Entries are what happened in the turn so far, without text deltas (CO-46).
func (t *Turn) Entries() []event.Event { return slices.Clip(t.entries) }

// Pending are the tool calls of the round under way, also those that ran (CO-17).
func (t *Turn) Pending() []conversation.ToolCall { return slices.Clip(t.round) }

// PendingTool is the call that is about to run, in BeforeEachTool only; nil elsewhere.
func (t *Turn) PendingTool() *conversation.ToolCall { return t.pending }

// ToolsCalled are the tools that ran so far in the turn, in order.
func (t *Turn) ToolsCalled() []string { return slices.Clip(t.tools) }

// Usage is what the models consumed so far in the turn.
func (t *Turn) Usage() execution.Usage { return t.usage }

// ContextPercent is how full the model's context was in its last call; 0 before the first
// (CO-21).
func (t *Turn) ContextPercent() float64 {
	limit := t.info.Context
	if limit <= 0 {
		limit = llm.DefaultContext
	}
	return 100 * float64(t.context) / float64(limit)
}

// Ask asks the agent's model beside the conversation, from AfterUserInput on. What it says is
// kept like its other replies, so that a successor does not ask again; nobody is shown it.
func (t *Turn) Ask(ctx context.Context, req llm.Request) (conversation.Message, error) {
	if t.ask == nil {
		return conversation.Message{}, failure.New(failure.AgentState, "hook.Ask", "there is no model to ask here; ask from AfterUserInput on, in an agent that has a model")
	}
	return t.ask(ctx, req)
}

// Warn tells a person something; the turn goes on.
func (t *Turn) Warn(reason, message string) { t.tell(event.Warning{Reason: reason, Message: message}) }

// Think tells what the agent thinks (CO-48).
func (t *Turn) Think(topic event.Topic, text string) {
	t.tell(event.Thinking{Topic: topic, Text: text})
}

// tell emits an event, unless nobody heard the one before; who called a handler finds that out.
func (t *Turn) tell(p event.Payload) {
	if t.deaf == nil {
		t.deaf = t.pass(event.Event{Payload: p})
	}
}

// Stop asks the turn to stop, for a reason that the user may read. It does so before the
// next model call or tool; the tools of the round that did not run are answered in their
// stead (CO-63).
func (t *Turn) Stop(reason string) {
	if t.stop == "" {
		t.stop = reason
	}
}

// End ends the turn at once: nothing of it runs after this handler, neither the agent nor
// AfterAgent (AD-8, AD-11). What was said so far is the answer.
func (t *Turn) End() { t.ended = true }
