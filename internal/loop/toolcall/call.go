// Package toolcall is one tool call on its way from the model's request to its result. The phases of a round pass it on:
// prepare decides about it, execute runs it, finish reports it.
package toolcall

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The texts that a model reads of calls without a result of their own.
const (
	FailedPrefix = "Error: "                                         // begins the text of a tool that failed
	Interrupted  = "Interrupted: the turn was stopped while it ran." // a stop cut the tool off
	NotRun       = "Not run: the turn was stopped before it."        // a stop came before the tool
	NoOutput     = "(no output)"                                     // providers reject empty messages
)

// MaxText limits the part of a tool's result that a model reads, in bytes.
const MaxText = 256 << 10

// State says how far a call is.
//
//	           prepare               execute
//	Ready    ─────────▶ Answered
//	         ─────────▶ Waiting
//	         ─────────▶ Ready ─────▶ Executed   or Waiting, when calls inside of a nested call wait
//	                          ─────▶ Replayed
//	                          ─────▶ InDoubt
type State string

// The states.
const (
	Ready    State = "ready"    // it is about to run
	Answered State = "answered" // a handler or a person has decided the result, so it does not run
	Waiting  State = "waiting"  // it needs an answer from outside of the turn
	Executed State = "executed" // it ran in this attempt
	Replayed State = "replayed" // the journal has its result, which was reported in an earlier attempt
	InDoubt  State = "in doubt" // it ran when its worker was lost, and must not run again
)

// Call is one tool call of a round.
type Call struct {
	Asked  conversation.ToolCall // as the model asked for it; events and messages have its id and name
	Hook   *hook.Call            // what handlers see and change: arguments, status and text
	Tool   tool.Tool             // nil when there is none of this name
	Nested *nested.Call          // of an agent that is a tool (nil for other tools)
	State  State

	ID      string              // under which an answer to the call arrives
	Answer  Answer              // what the turn brought for it
	Pending []execution.Pending // what it waits for: its own answer, or the answers to calls inside of it

	Entry    execution.Entry  // of the journal, as far as it is known
	Key      string           // idempotency key (empty for none)
	Recorded *execution.Entry // of a replay: how a nested call, which is made again, ended then
	Memory   *hook.Memory     // what the tool sees; its changes count when it succeeds (CO-39c)
	Effects  Effects          // what the tool did besides returning a result
	Fatal    error            // why the step cannot continue after a nested call (nil when it can)

	mu sync.Mutex // guards Effects.Untrusted: a tool may have goroutines
}

// Answer is the answer that the turn brought for a call.
type Answer struct {
	execution.Answer       // the zero Answer when the turn brought none
	Decided          bool  // it decided the call
	Unreadable       error // why its credential cannot be used
}

// Effects are the effects of a tool on the turn, besides its result. The journal keeps them with the result,
// because a successor does not run the tool again but needs its effects.
type Effects struct {
	Set       map[string]json.RawMessage `json:"set,omitempty"`       // keys of state that it set
	Removed   []string                   `json:"removed,omitempty"`   // keys of state that it removed
	Escalate  bool                       `json:"escalate,omitempty"`  // it called Escalate
	Last      int                        `json:"last,omitempty"`      // as nested.Call has it
	Stopped   string                     `json:"stopped,omitempty"`   // as nested.Call has it
	Untrusted string                     `json:"untrusted,omitempty"` // whose words its result holds, as it says itself
}

// New returns a call of which only the model's request is known.
func New(turn *hook.Turn, asked conversation.ToolCall, number int) *Call {
	return &Call{
		Asked: asked, State: Ready, Entry: execution.Entry{Number: number, Tool: asked.Name},
		Hook: &hook.Call{Turn: turn, ID: asked.ID, Name: asked.Name, Arguments: asked.Arguments},
	}
}

// Refuse fails a call that cannot run.
func (c *Call) Refuse(why error) {
	c.Hook.Refuse(FailedPrefix + failure.Plain(why))
	c.Hook.Err = why
}

// MarkDecided records that an answer decided the call. A successor reads that from the journal, because its turn
// may not bring the answer again.
func (c *Call) MarkDecided() { c.Entry.Phase, c.Answer.Decided = execution.Done, true }

// SpansTurns reports whether the work of the call continues from turn to turn. That is so for an agent used as a
// tool, and for a tool that the client runs. For such a call the intent in the journal means that it was
// approved; it leaves nothing in doubt.
func (c *Call) SpansTurns() bool { return c.Nested != nil || c.Hook.AtClient }

// IsInDoubt reports whether an earlier attempt was lost while it ran a tool that may run only once.
func (c *Call) IsInDoubt(log *journal.Log) bool {
	return log.HasIntent(c.Entry.Number) && !c.SpansTurns() && c.Entry.Effect != execution.Read && c.Entry.Effect != execution.Idempotent
}

// Restore ends the call as the journal entry says.
func (c *Call) Restore(e execution.Entry) {
	c.Hook.Status, c.Hook.Text, c.State = event.ToolStatus(e.Status), e.Text, Replayed
	c.Entry.Mode = e.Mode
	if e.Reply.Text != "" && json.Unmarshal([]byte(e.Reply.Text), &c.Effects) != nil {
		return // not an entry of this loop
	}
	if c.Nested != nil {
		c.Nested.Last, c.Nested.Stopped, c.Nested.Usage = c.Effects.Last, c.Effects.Stopped, e.Usage
	}
}

// WithHolder returns a context for the tool and the handlers of the call. With it they find the credentials lent
// to the call.
func (c *Call) WithHolder(ctx context.Context) context.Context {
	return execution.WithHolder(ctx, c.Hook.Turn.Info().Agent+"/"+c.Asked.Name)
}

// Quote notes the untrusted source of the call's result, as the tool reports it. The first source counts. It is
// safe for concurrent use.
func (c *Call) Quote(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Effects.Untrusted == "" {
		c.Effects.Untrusted = source
	}
}

// Quoted returns the untrusted source of the call's result, or "". It is safe for concurrent use.
func (c *Call) Quoted() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Effects.Untrusted
}

// Failed reports whether the call counts as a failure.
func (c *Call) Failed() bool {
	return c.Hook.Status == event.ToolError || c.Hook.Status == event.ToolNotFound
}

// StopTurn stops the turn, and the parent's when the turn runs inside of a nested call.
func StopTurn(ctx context.Context, turn *hook.Turn, reason string) {
	turn.Stop(reason)
	nested.StopParent(ctx, Cut(reason, nested.MaxReason))
}

// Cut shortens text to at most limit bytes, and marks it as cut.
func Cut(text string, limit int) string {
	const mark = "… (cut)"
	if len(text) <= limit {
		return text
	}
	return conversation.Cut(text, limit-len(mark)) + mark
}
