package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Round is a tool round: all calls of one reply.
type Round struct {
	*Turn
	Calls []conversation.ToolCall // in order; do not change them, AfterLLM can
}

// Call is one tool call. Before it runs, handlers may change its arguments or answer in its place. Afterwards they may
// change what the model reads.
type Call struct {
	*Turn
	ID          string
	Name        string
	Description string // of the tool; empty when there is no such tool
	Arguments   string // a JSON object
	Effect      execution.Effect
	AtClient    bool // the client of the agent runs it, never this process (tool.Client)
	Replayed    bool // it ran in an earlier attempt and does not run again

	// Untrusted is the source of untrusted words because of which the call needs an approval (S14) (empty when it
	// needs none for that reason).
	Untrusted string

	Status   event.ToolStatus // after it ran
	Text     string           // what the model reads; set by the tool, Answer or Refuse
	Err      error            // of the tool; nil when it succeeded
	Duration time.Duration    // without the time of handlers
	Until    time.Time        // when a call that waits counts as denied, as set by Wait

	wait callWait
}

// Answer gives the model a result without running the tool (AD-31).
func (c *Call) Answer(text string) { c.Status, c.Text = event.ToolSuccess, text }

// Refuse tells the model why the tool does not run. It counts as a failure of the tool.
func (c *Call) Refuse(reason string) { c.Status, c.Text = event.ToolError, reason }

// Skip tells the model why the tool does not run. Unlike Refuse, it is not a failure of the tool, for example if a
// person does not want the call.
func (c *Call) Skip(reason string) { c.Status, c.Text = event.ToolInterrupted, reason }

// Completion is a turn that has an answer.
type Completion struct {
	*Turn
	Result   string
	Reason   event.Reason
	Duration time.Duration
}

// Transcript returns the messages of the turn as JSON (CO-54).
func (c *Completion) Transcript() (string, error) {
	text, err := json.Marshal(c.Messages())
	return string(text), err
}

// Running describes the turn to a tool that runs in it (CO-51). InTool returns it. It is zero outside of tools and
// after the end of the call.
type Running struct {
	Info      Info
	CallID    string
	Iteration int
	Messages  []conversation.Message // oldest first; do not change them
	Previous  []string               // tools that ran before in the turn, in order
	Untrusted string                 // as Turn.Untrusted

	state    *ownership.AgentState
	config   *ownership.Config
	memory   *Memory
	progress *turnstate.Progress
}

// State returns the agent's own state (nil outside of tools).
func (r Running) State() *ownership.AgentState { return r.state }

// Config returns the agent's configuration (nil outside of tools).
func (r Running) Config() *ownership.Config { return r.config }

// Memory returns the session's state, artifacts and history (nil outside of tools).
func (r Running) Memory() *Memory { return r.memory }

// Escalate is Turn.Escalate for a tool. Safe for concurrent use; outside of tools it does nothing.
func (r Running) Escalate() {
	if r.progress != nil {
		r.progress.Escalate()
	}
}

// String describes the turn for a person.
func (r Running) String() string {
	if r.CallID == "" {
		return "no tool is running"
	}
	return fmt.Sprintf("agent %s, turn %d, iteration %d, task %q, %d messages, tools before: %s",
		r.Info.Agent, r.Info.Turn, r.Iteration, r.Info.Prompt, len(r.Messages), strings.Join(r.Previous, ", "))
}

type runningKey struct{}

// InTool returns the turn of the running tool. Each tool call sees only its own turn.
func InTool(ctx context.Context) Running {
	cell, _ := ctx.Value(runningKey{}).(*atomic.Pointer[Running])
	if cell == nil {
		return Running{}
	}
	if r := cell.Load(); r != nil {
		return *r
	}
	return Running{}
}

// EnterTool returns the context for a tool call, in which InTool finds the turn until the returned function is called.
// Memory is the turn's memory, or a fork of it for a tool that runs concurrently, until Absorb.
func (c *Control) EnterTool(ctx context.Context, callID string, memory *Memory) (context.Context, func()) {
	t := c.turn
	cell := &atomic.Pointer[Running]{}
	cell.Store(&Running{
		Info: t.info, CallID: callID, Iteration: t.Iteration(), Messages: t.Messages(),
		Previous: t.ToolsCalled(), Untrusted: t.Untrusted(), state: t.state, config: t.config, memory: memory, progress: t.progress,
	})
	return context.WithValue(ctx, runningKey{}, cell), func() { cell.Store(nil) }
}
