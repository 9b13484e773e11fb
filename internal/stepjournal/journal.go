// Package stepjournal has the parts of the journal of a step that only the runtime needs: keys of tool calls, and
// the sealed journal with which a finished step is run again.
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

// Sealed is the journal of a finished step that is run again to see whether it does the same (ADR 0027). Code that
// needs an entry and finds none must not act: it asks Stray for the error to end with. A Sealed keeps the first
// difference.
type Sealed interface {
	execution.Journal
	// Stray records a call that the journal does not have under this number. It returns the error with which the
	// step ends; its mode is nondeterminism.
	Stray(now execution.Entry) error
	// Asked records that the call of a number is made again, with the digest of its input.
	Asked(number int, digest string)
}

// factUnrecorded marks an error of UnrecordedError.
const factUnrecorded = "unrecorded"

// UnrecordedError returns the error for code that would act outside of the mesh while its step is only replayed.
// The journal does not contain the outcome of such an act.
func UnrecordedError(op, act string) *failure.Error {
	return failure.Newf(failure.AgentState, op, "%s is not done again, and what came of it then is not recorded", act).With(factUnrecorded, "true")
}

// IsUnrecorded reports whether err is an UnrecordedError.
func IsUnrecorded(err error) bool {
	e, ok := errors.AsType[*failure.Error](err)
	return ok && e.Facts[factUnrecorded] != ""
}

// CallDigest returns the digest of a tool call. Only calls of the same tool with the same arguments have the same
// one.
func CallDigest(tool, arguments string) string {
	sum := sha256.Sum256([]byte(tool + "\x00" + arguments))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

// CallKey returns the idempotency key of a tool call. It is the same in all attempts of the step, because it depends
// neither on the attempt nor on the id that a model gave the call.
func CallKey(turnID string, step, number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d", turnID, step, number))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}
