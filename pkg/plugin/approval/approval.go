// Package approval asks a person before a tool runs that may do more than read (CO-64). Without
// an Asker the turn ends with what waits, and whoever goes on with it answers (AD-32, OC-33): so
// it is in the mesh. An Asker runs in the process of the agent and holds the turn while it
// waits: for a program at a terminal.
package approval

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Name is that of the plugin.
const Name = "approval"

// ReasonNobody is that of the warning when a tool did not run because nobody could be asked.
const ReasonNobody = "APPROVAL_NOT_POSSIBLE"

// Asker asks a person. Implementations are safe for concurrent use.
type Asker interface {
	// Ask returns what the person decided. It returns when ctx ends, because the turn took
	// too long or was stopped. An error means that nobody could be asked: the tool does not
	// run.
	Ask(ctx context.Context, q Question) (Answer, error)
}

// AskerFunc is a function as an Asker.
type AskerFunc func(context.Context, Question) (Answer, error)

// Ask implements Asker.
func (f AskerFunc) Ask(ctx context.Context, q Question) (Answer, error) { return f(ctx, q) }

// Question is what a person decides about. The arguments are a model's: they may hold
// anything, so an Asker that shows them on a terminal makes control characters visible.
type Question struct {
	Turn        hook.Info
	CallID      string
	Tool        string
	Description string // of the tool
	Arguments   string // a JSON object
	Risk        execution.Effect
	Untrusted   string                  // source of words that the turn has read and others wrote, which may be why it wants the call (S14); empty: none
	Remaining   []conversation.ToolCall // of the round, behind this one
}

// Answer is what a person decided. The zero Answer decides nothing, so the tool does not run.
type Answer struct {
	Verdict Verdict
	Scope   Scope
	Reason  string // for Skip and Stop; the model, or the user, reads it
}

// Verdict is what becomes of a tool call.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow" // the tool runs
	Skip  Verdict = "skip"  // it does not; the model reads that, and the turn goes on
	Stop  Verdict = "stop"  // it does not, nor does the rest of the round, and the turn ends
)

// Scope is how long an answer counts.
type Scope string

// The scopes. The zero Scope, and any other, is that of Once.
const (
	Once    Scope = "once"
	Session Scope = "session" // for the tool in this session, whatever its arguments; not of Stop
)
