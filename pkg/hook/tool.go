package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Round is a tool round: all that the model asked for in one reply.
type Round struct {
	*Turn
	Calls []conversation.ToolCall // in order; do not change them, AfterLLM can
}

// Call is one tool call. Before it runs its arguments can be changed, or it can be answered
// without running; afterwards what the model reads can be changed.
type Call struct {
	*Turn
	ID          string
	Name        string
	Description string // of the tool; empty when there is no such tool
	Arguments   string // a JSON object
	Effect      execution.Effect
	AtClient    bool // the client of the agent runs it (tool.Client), and this process never does
	Replayed    bool // it ran in an attempt before this one, and does not run again

	// Untrusted is the source of untrusted words that the turn has read, when that is why the call
	// needs an approval (S14); empty: it needs none for that.
	Untrusted string

	Status   event.ToolStatus // after it ran
	Text     string           // what the model reads; set by the tool, Answer or Refuse
	Err      error            // of the tool; nil when it succeeded
	Duration time.Duration    // without the time of handlers
	Until    time.Time        // of a call that waits: Wait
	Lacks    *execution.Login // of a call that waits: Login

	waiting Waiting
	allowed bool
}

// Answer gives the model a result without running the tool (AD-31).
func (c *Call) Answer(text string) { c.Status, c.Text = event.ToolSuccess, text }

// Refuse tells the model why the tool does not run; it counts as a failure of the tool.
func (c *Call) Refuse(reason string) { c.Status, c.Text = event.ToolError, reason }

// Skip tells the model why the tool does not run, where that is no failure of the tool: a
// person does not want it.
func (c *Call) Skip(reason string) { c.Status, c.Text = event.ToolInterrupted, reason }

// Completion is a turn that has an answer.
type Completion struct {
	*Turn
	Result   string
	Reason   event.Reason
	Duration time.Duration
}

// Transcript are the messages of the turn as JSON (CO-54).
func (c *Completion) Transcript() (string, error) {
	text, err := json.Marshal(c.messages)
	return string(text), err
}

// Running is what a tool knows of the turn that it runs in (CO-51): it is found with InTool.
// The zero Running, outside of tools and behind the end of the call, knows nothing.
type Running struct {
	Info      Info
	CallID    string
	Iteration int
	Messages  []conversation.Message // oldest first; do not change them
	Previous  []string               // tools that ran before in the turn, in order
	Untrusted string                 // that of the turn

	state     *ownership.AgentState
	config    *ownership.Config
	memory    *Memory
	escalated *atomic.Bool
}

// State is the agent's own; nil outside of tools.
func (r Running) State() *ownership.AgentState { return r.state }

// Config is the agent's configuration; nil outside of tools.
func (r Running) Config() *ownership.Config { return r.config }

// Memory is the session's state, artifacts and past; nil outside of tools.
func (r Running) Memory() *Memory { return r.memory }

// String is all of it, for a person.
func (r Running) String() string {
	if r.CallID == "" {
		return "no tool is running"
	}
	return fmt.Sprintf("agent %s, turn %d, iteration %d, task %q, %d messages, tools before: %s",
		r.Info.Agent, r.Info.Turn, r.Iteration, r.Info.Prompt, len(r.Messages), strings.Join(r.Previous, ", "))
}

type runningKey struct{}

// InTool is what a tool knows of the turn that called it. Concurrent turns do not see each
// other's.
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

// Enter returns the context for a tool call, and what takes away again that InTool finds
// something there. The memory is that of the turn, or a fork for a tool that runs beside
// others, until Absorb.
func (c *Control) Enter(ctx context.Context, callID string, memory *Memory) (context.Context, func()) {
	t := c.t
	cell := &atomic.Pointer[Running]{}
	cell.Store(&Running{
		Info: t.info, CallID: callID, Iteration: t.iteration, Messages: t.Messages(),
		Previous: t.ToolsCalled(), Untrusted: t.Untrusted(), state: t.state, config: t.config, memory: memory, escalated: &t.escalated,
	})
	return context.WithValue(ctx, runningKey{}, cell), func() { cell.Store(nil) }
}
