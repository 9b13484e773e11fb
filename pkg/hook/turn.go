package hook

import (
	"context"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Info identifies a turn and its agent (AD-15). The application is the mesh, or one tenant of it, and has no name here.
type Info struct {
	Agent   string
	Model   string // full name (empty for an agent without a model)
	Context int64  // context size of the model, in tokens (0 means llm.DefaultContextSize)
	Session string
	User    string // owner of the session (empty when it has none)
	TurnID  string // the same in all attempts
	TraceID string
	Turn    int      // in the session, from 1
	Step    int      // in the turn, from 1
	Attempt int      // from 1
	Branch  string   // path of this agent in a flow, its own name last
	Prompt  string   // what the user said
	Routes  []string // agents between which the step chooses; its text is not an answer then
}

// Turn is a handler's view of the running turn, with the actions that a handler may take. Use it only while the handler runs, and only
// on its goroutine.
type Turn struct {
	info   Info
	state  *ownership.AgentState
	config *ownership.Config
	memory *Memory
	trace  ownership.TraceView

	conversation *turnstate.Conversation
	events       *turnstate.Events
	progress     *turnstate.Progress
	ask          func(context.Context, llm.Request) (conversation.Message, error)
}

// Info identifies the turn.
func (t *Turn) Info() Info { return t.info }

// Iteration returns the number of the running iteration, from 1 (0 before the first).
func (t *Turn) Iteration() int { return t.progress.Iteration() }

// Messages returns the messages that the model sees next, oldest first, without the system prompt. Do not change them: use Add and
// Replace.
func (t *Turn) Messages() []conversation.Message { return t.conversation.Messages() }

// Add adds messages to the conversation as the model sees it. In a tool round, and in AfterLLM when the model has asked for tools,
// they wait until the last tool has its result, and come before those of AfterTools: nothing may stand between a call and its results
// (C-11, CO-33). The messages are not stored with the session; use Memory for what must last.
func (t *Turn) Add(messages ...conversation.Message) { t.conversation.Add(messages...) }

// Replace replaces all messages that the model would see, for example by a compaction of them. It fails with agent_logic in a tool
// round, and when calls and their results would be separated.
func (t *Turn) Replace(messages []conversation.Message) error {
	return t.conversation.Replace(messages)
}

// State returns the agent's own state (the AGENT tier). It lives as long as the agent runs; its turns, handlers and tools share it.
func (t *Turn) State() *ownership.AgentState { return t.state }

// Config returns the agent's configuration (the SHARED tier). All instances share it. Each sees it as it was when the instance
// started, with its own later changes.
func (t *Turn) Config() *ownership.Config { return t.config }

// Memory returns the session's state, artifacts and history (the MEMORY tier). Reads are direct; changes are requests.
func (t *Turn) Memory() *Memory { return t.memory }

// Trace returns the read-only part of the trace that the orchestrator shares (the ORCHESTRATOR tier).
func (t *Turn) Trace() ownership.TraceView { return t.trace }

// Entries returns the events of the turn so far, without text deltas (CO-46).
func (t *Turn) Entries() []event.Event { return t.events.Entries() }

// Pending returns all tool calls of the current round, including calls that already ran (CO-17).
func (t *Turn) Pending() []conversation.ToolCall { return t.conversation.OpenCalls() }

// PendingTool returns the call that is about to run. It is nil outside of BeforeEachTool.
func (t *Turn) PendingTool() *conversation.ToolCall { return t.conversation.PendingCall() }

// ToolsCalled returns the tools that ran so far in the turn, in order.
func (t *Turn) ToolsCalled() []string { return t.progress.ToolsRun() }

// Usage returns the usage of models so far in the turn.
func (t *Turn) Usage() execution.Usage { return t.progress.Usage() }

// Untrusted returns the source of the first untrusted text that the model has read, such as "tool http_fetch". Text is untrusted if
// neither the user nor the agent's author wrote it. The source is empty if the model has read none (guarantee S14).
func (t *Turn) Untrusted() string { return t.conversation.UntrustedSource() }

// ContextPercent returns what percentage of the model's context its last call filled (0 before the first call) (CO-21).
func (t *Turn) ContextPercent() float64 {
	limit := t.info.Context
	if limit <= 0 {
		limit = llm.DefaultContextSize
	}
	return 100 * float64(t.progress.ContextTokens()) / float64(limit)
}

// Ask sends the agent's model a request outside of the conversation. It works from AfterUserInput on. The reply is journaled, so a
// successor does not ask again. Clients do not see it. Ask fails with agent_state if the agent has no model.
func (t *Turn) Ask(ctx context.Context, req llm.Request) (conversation.Message, error) {
	if t.ask == nil {
		return conversation.Message{}, failure.New(failure.AgentState, "hook.Ask",
			"there is no model to ask here; ask from AfterUserInput on, in an agent that has a model")
	}
	return t.ask(ctx, req)
}

// Warn emits a warning for people. The turn continues.
func (t *Turn) Warn(reason, message string) {
	_ = t.events.Emit(event.Warning{Reason: reason, Message: message}) // Control.Events.Err returns the error
}

// Think emits a thought of the agent (CO-48).
func (t *Turn) Think(topic event.Topic, text string) {
	_ = t.events.Emit(event.Thinking{Topic: topic, Text: text}) // as in Warn
}

// Emit emits an event of a kind of your own, with data as JSON (nil for none). It is stored, numbered and streamed as all events are
// (AD-37). event.Custom and event.MaxCustomEvents say what a name may be, and what a step may emit. Beyond that, Emit fails with
// agent_logic or resource_quota and emits nothing; the turn continues if the handler ignores the error.
func (t *Turn) Emit(name string, data any) error { return t.events.EmitCustom(name, data) }

// Stop requests that the turn stop, for a reason that the user may read. The turn stops before its next model call or tool call. Each
// remaining call of the round gets a result that says so (CO-63).
func (t *Turn) Stop(reason string) { t.progress.RequestStop(reason) }

// End ends the turn at once: neither the agent nor AfterAgent runs after this handler (AD-8, AD-11). The answer is the text so far.
func (t *Turn) End() { t.progress.End() }

// Escalate stops the nearest enclosing flow made with flow.Repeat after this agent finishes (AD-28). Without one it does nothing.
func (t *Turn) Escalate() { t.progress.Escalate() }
