// Package stepjournal holds the parts of a step's journal that only the runtime needs: the keys of tool calls, and
// the interface of the journal that replays a finished step.
package stepjournal

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// SealedJournal is the journal of a finished step that is run again, to check whether it behaves in the same way
// (ADR 0027). If the journal has no entry for a call, the caller must not make the call: it ends the step with the
// error of AddUnexpectedCall. The journal keeps the first difference.
type SealedJournal interface {
	execution.Journal
	// AddUnexpectedCall records a call that the journal does not contain under this number. It returns the error
	// to end the step with, whose mode is nondeterminism.
	AddUnexpectedCall(now execution.Entry) error
	// AddRepeatedCall records that the step made the call with this number again. digest is the digest of the
	// call's input.
	AddRepeatedCall(number int, digest string)
}

// factUnrecorded is the fact that marks an error of NewUnrecordedError.
const factUnrecorded = "unrecorded"

// NewUnrecordedError returns the error for code that would act outside of the mesh during a replay. The journal
// does not contain the outcome of such an act, so the replay cannot continue.
func NewUnrecordedError(op, act string) *failure.Error {
	return failure.Newf(failure.AgentState, op, "%s is not repeated in a replay, and its outcome was not recorded", act).With(factUnrecorded, "true")
}

// IsUnrecorded reports whether err comes from NewUnrecordedError.
func IsUnrecorded(err error) bool {
	e, ok := errors.AsType[*failure.Error](err)
	return ok && e.Facts[factUnrecorded] != ""
}

// CallDigest returns the digest of a tool call. Two calls have the same digest only if the tool and the arguments
// are the same.
func CallDigest(tool, arguments string) string {
	sum := sha256.Sum256([]byte(tool + "\x00" + arguments))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

// CallKey returns the idempotency key of a tool call. It is the same in all attempts of the step, because it does
// not depend on the attempt or on the id that the model gave the call.
func CallKey(turnID string, step, number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d", turnID, step, number))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}
