// Package approval asks a person before a tool runs that may do more than read (CO-64). Without an Asker the turn
// ends with pending calls, and a later turn that brings the answers continues (AD-32, OC-33). A mesh uses this
// way. An Asker runs in the process of the agent, and the turn waits for it. It suits a program at a terminal.
package approval

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Name is the name of the plugin. ReasonNotPossible is the reason of the warning that a tool did not run because no person
// could be asked.
const (
	Name              = "approval"
	ReasonNotPossible = "APPROVAL_NOT_POSSIBLE"
)

// Asker asks a person. Implementations are safe for concurrent use.
type Asker interface {
	// Ask returns the decision of the person. It returns early when ctx ends, because the turn took too long or
	// was stopped. If it returns an error, no person could be asked, and the tool does not run.
	Ask(ctx context.Context, q Question) (Answer, error)
}

// AskerFunc is a function that implements Asker.
type AskerFunc func(context.Context, Question) (Answer, error)

// Ask implements Asker.
func (f AskerFunc) Ask(ctx context.Context, q Question) (Answer, error) { return f(ctx, q) }

// Question is a tool call about which a person must decide. The arguments come from a model and may contain any
// text. An Asker that shows them on a terminal must therefore make control characters visible.
type Question struct {
	Turn        hook.Info
	CallID      string
	Tool        string
	Description string // description of the tool
	Arguments   string // a JSON object
	Risk        execution.Effect
	Untrusted   string                  // source of untrusted words that the turn has read, which may be the reason for the call (S14; empty means none)
	Remaining   []conversation.ToolCall // calls of the same round that come after this one
}

// Answer is the decision of a person. The zero Answer makes no decision, so the tool does not run.
type Answer struct {
	Verdict Verdict
	Scope   Scope
	Reason  string // why the call was skipped or stopped, for the model or the user
}

// Verdict decides what happens to a tool call.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow" // the tool runs
	Skip  Verdict = "skip"  // the tool does not run; the model reads that, and the turn continues
	Stop  Verdict = "stop"  // neither the tool nor the rest of the round runs, and the turn ends
)

// Scope says how long an answer remains valid.
type Scope string

// The scopes. The zero Scope and unknown scopes mean Once.
const (
	Once    Scope = "once"
	Session Scope = "session" // for the tool in this session, whatever its arguments; not for Stop
)
