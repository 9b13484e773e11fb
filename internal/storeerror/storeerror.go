// Package storeerror defines the errors that all stores of the MEMORY tier share, so that they all report the
// same. The parameter op names the method that failed.
package storeerror

import (
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// NoUser is returned for an artifact under user: in a session without a user. The mode is user_invalid_input.
func NoUser(op string, ref session.Ref, name string) *failure.Error {
	return failure.Newf(failure.UserInvalidInput, op,
		"artifact %q: session %s has no user, so it has no user: artifacts; begin a session with a user, or leave out user:", name, ref.Session).
		With("session_id", ref.Session).With("name", name)
}

// WrongOffset is returned for a piece that does not begin where the stored content ends. The mode is
// base_mismatch.
func WrongOffset(op string, stored int64) *failure.Error {
	return failure.Newf(failure.BaseMismatch, op, "%d bytes of the content are stored; continue there", stored).
		With("offset", strconv.FormatInt(stored, 10))
}

// NotResumable is returned when a turn cannot be resumed, because it did not fail or is no longer the last turn of
// its session.
func NotResumable(op, turnID string) error {
	return failure.Newf(failure.TurnNotOpen, op,
		"turn %s cannot be resumed: it did not fail, or its session has continued since, or was cleared or compacted; send the message again", turnID).
		With("turn_id", turnID)
}

// ResumeExpired is returned when a failed turn cannot be resumed, because the store no longer has its journal.
func ResumeExpired(op, turnID string) error {
	return failure.Newf(failure.TurnNotOpen, op,
		"turn %s failed too long ago: its journal is gone, and repeating its calls might do harm; send the message again", turnID).
		With("turn_id", turnID)
}

// SessionExists is returned when a fork names a session that already exists.
func SessionExists(op string, ref session.Ref) error {
	return failure.Newf(failure.KeyReused, op,
		"session_id: session %s exists already, and a fork begins a new one; leave it empty or choose another", ref.Session).
		With("session_id", ref.Session)
}

// NotWaiting is returned for an answer to a turn of which no call waits.
func NotWaiting(op, turnID string) error {
	return failure.Newf(failure.TurnNotOpen, op,
		"no call of turn %s waits any more: they were answered, or a turn began without them; begin a turn with a message", turnID).
		With("turn_id", turnID)
}

// WaitExpired is returned for an answer to a turn whose journal the store no longer has.
func WaitExpired(op, turnID string) error {
	return failure.Newf(failure.TurnNotOpen, op,
		"the calls of turn %s have waited too long: its journal is gone, and repeating its calls might do harm; begin a turn with a message", turnID).
		With("turn_id", turnID)
}

// NotLastStep is returned when a step other than the last of its turn would wait for an answer.
func NotLastStep(op, turnID string, step int) error {
	return failure.Newf(failure.UserInvalidInput, op, "step %d of turn %s may not wait: a later step was committed, and only the last step may wait", step,
		turnID).
		With("turn_id", turnID).With("step", strconv.Itoa(step))
}

// WaitingStepFirst is returned when another step is committed before the step whose calls were answered.
func WaitingStepFirst(op, turnID string, step, first int) error {
	return failure.Newf(failure.UserInvalidInput, op, "step %d of turn %s comes too early: step %d, whose calls were answered, must be committed first",
		step, turnID, first).
		With("turn_id", turnID).With("step", strconv.Itoa(step))
}

// KeysChanged is returned when keys do not have the revisions that a commit expects. The mode is revision_mismatch.
func KeysChanged(op string, keys []string) error {
	return failure.Newf(failure.RevisionMismatch, op,
		"state: another session has changed %s since this turn read it; read the state again and repeat the change", strings.Join(keys, ", ")).
		With("keys", strings.Join(keys, ","))
}

// MissingEntry returns the error for rounds that name an entry which the journal of the step does not have. Its mode is
// user_invalid_input.
func MissingEntry(op string, step, entry int) error {
	return failure.Newf(failure.UserInvalidInput, op,
		"rounds.entry: the journal of step %d has no result under the number %d; send the message itself", step, entry).
		With("fields", "rounds.entry").With("step", strconv.Itoa(step))
}
