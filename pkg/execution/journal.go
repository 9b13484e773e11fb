package execution

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// Effect says whether it is harmful to run a tool again (guarantees, section 2.8).
type Effect string

// The effects. The zero Effect counts as AtMostOnce.
const (
	Read       Effect = "read"         // it changes nothing and may run any number of times
	Idempotent Effect = "idempotent"   // it changes nothing more under the same idempotency key
	AtMostOnce Effect = "at_most_once" // it may do harm, so it does not run again when the outcome is in doubt
)

// Phase is the part of a call that a journal entry records.
type Phase string

// The phases. A model call has only the phase Done, because repeating it is harmless.
const (
	Intent Phase = "intent" // the call is about to begin
	Done   Phase = "done"   // the call has ended
)

// Entry is one entry in the journal of a step. Model calls and tool calls are numbered together, from 1, in the
// order in which they happen. Each phase of a call is written once and never changes.
type Entry struct {
	Number int
	Phase  Phase
	Digest string // digest of tool and arguments; for a model only in a recorded step
	Tool   string // empty for a model
	Effect Effect // effect of the tool

	Reply    conversation.Message // reply of the model, or changes that a tool made besides its result
	Usage    Usage                // usage of the model call, or of an agent that is a tool
	SideCall bool                 // a handler made the model call outside of the conversation

	Mode   string // failure mode of a tool or a model that failed (empty without a failure, or without a mode)
	Status string // event.ToolStatus of the call
	Text   string // the result of the tool

	Arguments string // arguments of the tool; only in a recorded step
	StepInput []byte // only in number 0: input of the step, needed to run it again

	Late bool // no other attempt needs the entry, so it may be written with the next entry or the commit; the field is not stored
}

// Journal records the calls of a step and replays those that earlier attempts recorded. It is safe for concurrent
// use, because agents of a parallel flow share one.
type Journal interface {
	// Replay returns the entry that an earlier attempt recorded for a phase of a call.
	Replay(number int, phase Phase) (Entry, bool)
	// Record adds an entry. It may return before the entry is durable, but entries become durable in order.
	Record(e Entry)
	// Sync blocks until all recorded entries are durable. Modes: fenced when another attempt owns the step,
	// nondeterminism when an entry differs from the stored one.
	Sync(ctx context.Context) error
}
