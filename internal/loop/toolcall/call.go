// Package toolcall holds the state of one tool call, from the model's request to the result. The phases of a round
// pass it on: prepare decides about it, execute runs it, and finish reports it.
package toolcall

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// These are the texts that a model reads for calls without a result of their own.
const (
	FailedPrefix = "Error: "                                         // start of the text of a failed tool
	Interrupted  = "Interrupted: the turn was stopped while it ran." // a stop interrupted the tool
	NotRun       = "Not run: the turn was stopped before it."        // a stop came before the tool ran
	NoOutput     = "(no output)"                                     // providers reject empty messages
	OnlyFiles    = "(no text, only files)"                           // the result has files and no text
)

// MaxTextBytes is the size limit in bytes of the part of a tool's result that a model reads.
const MaxTextBytes = 256 << 10

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
	Ready    State = "ready"    // the call is about to run
	Answered State = "answered" // a handler or a person decided the result, so the tool does not run
	Waiting  State = "waiting"  // the call needs external input
	Executed State = "executed" // the tool ran in this attempt
	Replayed State = "replayed" // an earlier attempt recorded and reported the result
	InDoubt  State = "in doubt" // the tool was running when its worker was lost, and must not run again
)

// Call is one tool call of a round.
type Call struct {
	Requested conversation.ToolCall // request of the model; events and messages use its id and name
	HookCall  *hook.Call            // arguments, status and text, which handlers can read and change
	Tool      tool.Tool             // nil if no tool has this name
	Nested    *nested.Call          // nested call of an agent used as a tool (nil for other tools)
	State     State

	ID      string              // id under which the call is answered
	Answer  Answer              // answer to this call that the turn brought
	Pending []execution.Pending // what the call waits for: its own answer, or answers to its inner calls

	JournalEntry   execution.Entry // journal entry, filled in step by step
	IdempotencyKey string          // idempotency key (empty for none)
	Memory         *hook.Memory    // memory of the tool; its changes are kept only if the tool succeeds (CO-39c)
	Output         tool.Result     // what a successful tool returned; HookCall has the text that the model reads
	Effects        Effects         // changes of the tool to the turn besides its result
	FatalErr       error           // why the step cannot continue after the call (nil if it can)

	mu sync.Mutex // guards Effects.Untrusted, because a tool may use goroutines
}

// Answer is the turn's answer for a waiting call, with the outcome of applying it.
type Answer struct {
	execution.Answer       // zero if the turn brought no answer
	Decided          bool  // whether the answer decided the call
	CredentialErr    error // why the credential in the answer cannot be used
}

// Effects are the changes that a tool made to the turn besides returning a result. The journal keeps them with the
// result, because a successor needs them but does not run the tool again.
type Effects struct {
	statechange.Recorded        // changes of state by the tool, and by handlers since the call before
	ToolOnly             bool   `json:"tool_only,omitempty"` // the changes of state are only those of the tool
	Escalate             bool   `json:"escalate,omitempty"`  // whether the tool called Escalate
	LastCallNumber       int    `json:"last,omitempty"`      // same as in nested.Call
	Stopped              string `json:"stopped,omitempty"`   // same as in nested.Call
	Untrusted            string `json:"untrusted,omitempty"` // untrusted source of the result, as reported by the tool
}

// New returns a call that contains only the model's request.
func New(turn *hook.Turn, asked conversation.ToolCall, number int) *Call {
	return &Call{
		Requested: asked, State: Ready, JournalEntry: execution.Entry{Number: number, Tool: asked.Name},
		HookCall: &hook.Call{Turn: turn, ID: asked.ID, Name: asked.Name, Arguments: asked.Arguments},
	}
}

// Reject fails a call that cannot run. why becomes its error.
func (c *Call) Reject(why error) {
	c.HookCall.Reject(FailedPrefix + failure.PlainMessage(why))
	c.HookCall.Err = why
}

// MarkDecided records that an answer decided the call. A successor reads this from the journal, because its turn
// may not receive the answer again.
func (c *Call) MarkDecided() { c.JournalEntry.Phase, c.Answer.Decided = execution.Done, true }

// SpansTurns reports whether the work of the call may continue across turns. This holds for an agent used as a
// tool and for a tool that the client runs. For such a call, an intent in the journal means that it was approved
// and not that it is in doubt.
func (c *Call) SpansTurns() bool { return c.Nested != nil || c.HookCall.AtClient }

// IsInDoubt reports whether an earlier attempt was lost while it ran a tool that may run only once.
func (c *Call) IsInDoubt(log *journal.Log) bool {
	return log.HasIntent(c.JournalEntry.Number) && !c.SpansTurns() && c.JournalEntry.Effect != execution.Read && c.JournalEntry.Effect != execution.Idempotent
}

// RestoreFrom sets the result of the call from its journal entry.
func (c *Call) RestoreFrom(e execution.Entry) {
	c.HookCall.Status, c.HookCall.Text, c.State = event.ToolStatus(e.Status), e.Text, Replayed
	c.JournalEntry.Mode, c.Output.Attachments = e.Mode, e.Reply.Attachments
	if e.Reply.Text != "" && json.Unmarshal([]byte(e.Reply.Text), &c.Effects) != nil {
		return // the entry was not written by this package
	}
	if c.Nested != nil {
		c.Nested.LastCallNumber, c.Nested.Stopped, c.Nested.Usage = c.Effects.LastCallNumber, c.Effects.Stopped, e.Usage
	}
}

// ContextWithHolder returns a context for the tool and the handlers of the call, in which they find the
// credentials lent to the call.
func (c *Call) ContextWithHolder(ctx context.Context) context.Context {
	return execution.WithHolder(ctx, c.HookCall.Turn.Info().Agent+"/"+c.Requested.Name)
}

// NoteUntrustedSource records the untrusted source of the call's result, as the tool reports it. Only the first
// source is kept. It is safe for concurrent use.
func (c *Call) NoteUntrustedSource(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Effects.Untrusted == "" {
		c.Effects.Untrusted = source
	}
}

// UntrustedSource returns the recorded untrusted source of the call's result, or "". It is safe for concurrent
// use.
func (c *Call) UntrustedSource() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Effects.Untrusted
}

// HasFailed reports whether the call counts as a failure.
func (c *Call) HasFailed() bool {
	return c.HookCall.Status == event.ToolError || c.HookCall.Status == event.ToolNotFound
}

// StopTurn stops the turn. If the turn runs inside of a nested call, it also stops the parent's turn.
func StopTurn(ctx context.Context, turn *hook.Turn, reason string) {
	turn.Stop(reason)
	nested.StopParent(ctx, CutText(reason, nested.MaxReasonBytes))
}

// CutText shortens text to at most limit bytes, and appends a mark if it was cut.
func CutText(text string, limit int) string {
	const mark = "… (cut)"
	if len(text) <= limit {
		return text
	}
	return conversation.Truncate(text, limit-len(mark)) + mark
}
