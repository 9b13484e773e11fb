package execution

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// Effect says what running a tool again would do (guarantees 2.8).
type Effect string

// The effects. The zero Effect counts as AtMostOnce.
const (
	Read       Effect = "read"         // it changes nothing and may run any number of times
	Idempotent Effect = "idempotent"   // it changes nothing more under the same idempotency key
	AtMostOnce Effect = "at_most_once" // it may do harm, so it does not run again when the outcome is in doubt
)

// Phase is the part of a call that an entry of the journal records.
type Phase string

// The phases. A model call has only Done, because asking a model again does no harm.
const (
	Intent Phase = "intent" // the call is about to begin
	Done   Phase = "done"   // the call has ended
)

// Entry is one thing that happened inside a step. Each model call and each tool call of a step has its own number,
// from 1 in the order in which they happen. Each phase of a number is written once and never changes.
type Entry struct {
	Number int
	Phase  Phase
	Digest string // of tool and arguments; for a model only in a recorded step
	Tool   string // empty for a model
	Effect Effect // of the tool

	Reply    conversation.Message // what the model said, or what a tool did besides returning a result
	Usage    Usage                // of the model call, or of an agent that is a tool
	SideCall bool                 // a handler made the model call, outside of the conversation

	Mode   string // failure mode of a tool or a model that failed (empty without a failure, or without a mode)
	Status string // how the tool ended, as event.ToolStatus has it
	Text   string // the result of the tool

	Arguments string // of the tool; only in a recorded step
	StepInput []byte // number 0: the input of the step, to run it again

	Late bool // no other attempt needs it, so it may be written with the next entry or the commit; it is not stored
}

// Journal records what happens in a step, and replays what earlier attempts of the step recorded. It is safe for
// concurrent use: agents of a parallel flow share one.
type Journal interface {
	// Replay finds an entry of an earlier attempt.
	Replay(number int, phase Phase) (Entry, bool)
	// Record adds an entry. It may become durable later, but in order.
	Record(e Entry)
	// Sync returns once all recorded entries are durable. Modes: fenced when another attempt has the step,
	// nondeterminism when an entry differs from the stored one.
	Sync(ctx context.Context) error
}
