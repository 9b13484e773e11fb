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
	Calls []conversation.ToolCall // in order; read-only here, AfterLLM may change them
}

// Call is one tool call. Before it runs, handlers may change its arguments or answer in its place. Afterwards they may change what the
// model reads.
type Call struct {
	*Turn
	ID          string
	Name        string
	Description string // description of the tool (empty when the tool does not exist)
	Arguments   string // a JSON object
	Effect      execution.Effect
	AtClient    bool // the agent's client runs the tool, not this process (tool.Client)
	Replayed    bool // the call ran in an earlier attempt and does not run again

	// Untrusted is the source of untrusted text that made an approval of this call necessary (guarantee S14). It is empty if the call
	// needs no approval for that reason.
	Untrusted string

	Status   event.ToolStatus // outcome (empty before the call ran)
	Text     string           // what the model reads; set by the tool, Answer or Reject
	Err      error            // error of the tool (nil when it succeeded)
	Duration time.Duration    // time of the tool alone, without handlers
	Until    time.Time        // when the call counts as denied if it is still without an answer; set by Wait

	wait turnstate.CallWait
}

// Answer sets the tool's result, so that the tool does not run (AD-31).
func (c *Call) Answer(text string) { c.Status, c.Text = event.ToolSuccess, text }

// Reject keeps the tool from running and gives the model the reason. It counts as a failure of the tool.
func (c *Call) Reject(reason string) { c.Status, c.Text = event.ToolError, reason }

// Skip keeps the tool from running and gives the model the reason. Unlike Reject, it does not count as a failure of the tool. Use it,
// for example, if a person does not want the call.
func (c *Call) Skip(reason string) { c.Status, c.Text = event.ToolInterrupted, reason }

// Completion describes a turn that ended.
type Completion struct {
	*Turn
	Result   string
	Reason   event.Reason
	Duration time.Duration
	Err      error // why it failed; only for AfterRun
}

// Transcript returns the messages of the turn as JSON (CO-54).
func (c *Completion) Transcript() (string, error) {
	text, err := json.Marshal(c.Messages())
	return string(text), err
}

// Running describes a running tool call and its turn to the tool (CO-51). InTool returns it. It is zero outside of a tool and after
// the call has ended.
type Running struct {
	Info      Info
	CallID    string
	Iteration int
	Messages  []conversation.Message // oldest first; read-only
	Previous  []string               // tools that ran earlier in the turn, in order
	Untrusted string                 // the same as Turn.Untrusted

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

// Escalate does for a tool what Turn.Escalate does for a handler. It is safe for concurrent use, and does nothing outside of a tool.
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

// EnterTool returns the context for a tool call. InTool finds the call in it until the returned function is called. memory is the
// turn's memory, or a fork of it if the tool runs concurrently. Absorb later applies the changes of the fork.
func (c *Control) EnterTool(ctx context.Context, callID string, memory *Memory) (context.Context, func()) {
	t := c.turn
	cell := &atomic.Pointer[Running]{}
	cell.Store(&Running{
		Info: t.info, CallID: callID, Iteration: t.Iteration(), Messages: t.Messages(),
		Previous: t.ToolsCalled(), Untrusted: t.Untrusted(), state: t.state, config: t.config, memory: memory, progress: t.progress,
	})
	return context.WithValue(ctx, runningKey{}, cell), func() { cell.Store(nil) }
}
