package db

import (
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// NewSessionNotFoundError returns the error for a session that does not exist.
func NewSessionNotFoundError(op string, ref session.Ref) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", ref.Session).
		With("session_id", ref.Session)
}

// NewSessionDeletedError returns the error for a session that was deleted.
func NewSessionDeletedError(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "session %s was deleted; begin a session with another id", ref.Session).
		With("session_id", ref.Session)
}

// NewSessionBusyError returns the error for a session that has an open turn.
func NewSessionBusyError(op string, c *Session) error {
	return failure.Newf(failure.SessionBusy, op, "session %s is busy with another turn; wait until it ends, or watch its trace", c.ID).
		With("turn_id", c.OpenTurn).With("trace_id", c.TurnsByID[c.OpenTurn].Trace)
}

// NewSessionFullError returns the error for messages that do not fit into the session.
func (d *DB) NewSessionFullError(op string, c *Session) error {
	messages, bytes := FormatDecimal(int64(len(c.Log))), FormatDecimal(totalSize(c.Log))
	return failure.Newf(failure.SessionFull, op,
		"session %s holds %s messages of %s bytes in all; a session may hold %d messages and %d bytes: begin a new session",
		c.ID, messages, bytes, d.MaxMessages, d.MaxBytes).
		With("messages", messages).With("max_messages", FormatDecimal(d.MaxMessages)).
		With("bytes", bytes).With("max_bytes", FormatDecimal(d.MaxBytes))
}

// NewTurnNotFoundError returns the error for a turn that does not exist.
func NewTurnNotFoundError(op string, ref session.Ref, turnID string) error {
	return failure.Newf(failure.NotFound, op, "session %s has no turn %s; begin it first", ref.Session, turnID).
		With("session_id", ref.Session).With("turn_id", turnID)
}

// NewFencedError returns the error for a lease whose epoch is not the latest of its session.
func NewFencedError(op string, lease memory.Lease, current int64) error {
	return failure.Newf(failure.Fenced, op, "epoch %d is fenced: session %s is at epoch %d, which another caller holds; stop this work",
		lease.Epoch, lease.Ref.Session, current).
		With("epoch", FormatDecimal(lease.Epoch)).With("current_epoch", FormatDecimal(current))
}

// NewTurnClosedError returns the error for a call that needs an open turn.
func NewTurnClosedError(op string, t *Turn) error {
	return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed: it is %s; begin a new turn", t.ID, t.Outcome).
		With("turn_id", t.ID).With("outcome", string(t.Outcome))
}

// NewStepCommittedError returns the error for a step that is already committed.
func NewStepCommittedError(op string, t *Turn, step int) error {
	return failure.Newf(failure.TurnNotOpen, op, "step %d of turn %s was committed; continue with the next step", step, t.ID).
		With("turn_id", t.ID).With("step", strconv.Itoa(step))
}

// NewNoUserError returns the error for keys under user: in a session without a user.
func NewNoUserError(op string, c *Session) error {
	return failure.Newf(failure.UserInvalidInput, op,
		"session %s has no user, so it has no user: keys; begin a session with a user", c.ID).With("session_id", c.ID)
}

// NewScopeFullError returns the error for changes that would exceed the limits of a scope.
func NewScopeFullError(op string, name memory.Scope) error {
	return failure.Newf(failure.ResourceQuota, op,
		"the state of the scope %s would be too large; it holds at most %d keys and %d bytes: remove some, or store it as an artifact",
		name, memory.MaxStateKeys, memory.MaxStateBytes).With("scope", string(name))
}

// NewRevisionMismatchError returns the error for a change whose expected revision is not the current one.
func NewRevisionMismatchError(op string, given, current int64) error {
	return failure.Newf(failure.RevisionMismatch, op, "the revision is %d and not %d; read it again and repeat the change", current, given).
		With("revision", FormatDecimal(current))
}

// FormatDecimal formats a number for the facts of an error.
func FormatDecimal(n int64) string { return strconv.FormatInt(n, 10) }
