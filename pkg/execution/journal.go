package execution

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Effect says what running a tool again would do (guarantees 2.8).
type Effect string

// The effects. The zero Effect is taken as AtMostOnce: nobody said that it is less.
const (
	Read       Effect = "read"         // nothing; it may run any number of times
	Idempotent Effect = "idempotent"   // nothing new under the same idempotency key
	AtMostOnce Effect = "at_most_once" // harm; when in doubt it is not run again
)

// Phase says whether an entry of the journal is about what is to be done, or what came of
// it.
type Phase string

// The phases. A model has only Done: asking it again does no harm.
const (
	Intent Phase = "intent"
	Done   Phase = "done"
)

// Entry is one thing that happened inside a step. Each model call and each tool call of a
// step has its own number, from 1 in the order in which they happen; each phase of a number
// is written once and never changes.
type Entry struct {
	Number int
	Phase  Phase
	Digest string // of what was asked: CallDigest of a tool; of a model only in a step that is recorded
	Tool   string // empty for a model
	Effect Effect // of the tool

	Reply conversation.Message // what the model said; of a tool what it did beside giving a result, as package loop writes it
	Usage Usage                // of the model call, or of an agent that is a tool
	Aside bool                 // the reply is no part of what the step says: the model was asked beside the conversation

	Mode   string // failure mode of a tool or a model that failed; empty: it did not, or has none
	Status string // how the tool ended, as event.ToolStatus has it
	Text   string // what it gave back

	Arguments string // of the tool; only in a step that is recorded
	Given     []byte // number 0: what the step was given, for who runs it again

	Late bool // no successor needs it: it may be written with the next entry, or with the commit. It is not stored
}

// Journal is what a step may know of the attempts before it, and leaves for those after it.
// It is safe for concurrent use: agents of a parallel flow share one.
type Journal interface {
	// Replay finds an entry that an attempt before this one left.
	Replay(number int, phase Phase) (Entry, bool)
	// Record notes an entry. It may become durable later, but in order.
	Record(e Entry)
	// Sync returns once all that was recorded is durable. Modes: fenced when another attempt
	// has the step, nondeterminism when an entry differs from the one that is stored.
	Sync(ctx context.Context) error
}

// Sealed is the journal of a step that is over and is run again to see whether it does the
// same (ADR 0027). Nothing happens that is not in it: who finds no entry where it needs one does
// not act, but asks Stray with what to end. It keeps the first difference.
type Sealed interface {
	Journal
	// Stray notes that the step would do now what the journal does not have under this number,
	// and returns the error with which the step ends. Its mode is nondeterminism.
	Stray(now Entry) error
	// Asked notes that the call of a number is made again, and the digest of what is asked.
	Asked(number int, digest string)
}

// factUnrecorded marks what nobody has recorded.
const factUnrecorded = "unrecorded"

// Unrecorded is the error of code that would act outside of the mesh, or have others act, while
// its step is only run again: the journal does not have what came of that.
func Unrecorded(op, what string) *failure.Error {
	return failure.Newf(failure.AgentState, op, "%s is not done again, and what came of it then is not recorded", what).With(factUnrecorded, "true")
}

// IsUnrecorded reports whether an error is Unrecorded.
func IsUnrecorded(err error) bool {
	e, ok := errors.AsType[*failure.Error](err)
	return ok && e.Facts[factUnrecorded] != ""
}

// CallDigest is that of a tool call: the same for the same tool and arguments only.
func CallDigest(tool, arguments string) string {
	sum := sha256.Sum256([]byte(tool + "\x00" + arguments))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

// CallKey is the idempotency key of a tool call: the same in all attempts of the step. It
// depends neither on the attempt nor on the id that a model gave the call.
func CallKey(turnID string, step, number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d", turnID, step, number))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}
