package db

import (
	"fmt"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// checkSessionReply returns an error if the reply says that the session is deleted or unreadable. Any script may
// reply so.
func checkSessionReply(op string, ref session.Ref, r Reply) error {
	switch r.Status() {
	case "deleted":
		return deletedError(op, ref)
	case "schema":
		return NewUnreadableError(op, fmt.Errorf("session %s has schema %s instead of %s", ref.Session, r.Text(1), Schema))
	default:
		return nil
	}
}

func deletedError(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "session %s was deleted; begin a new session", ref.Session).
		With("session_id", ref.Session)
}

// CheckWriteReply returns the error of a write that has no result. It returns nil if the script replied ok.
func CheckWriteReply(op string, h memory.Lease, r Reply, err error) error {
	if err != nil || r.Status() == "ok" {
		return err
	}
	return TurnErrorFromReply(op, h, r)
}

// TurnErrorFromReply returns the error for a reply that any call on behalf of a turn may get.
func TurnErrorFromReply(op string, h memory.Lease, r Reply) error {
	switch r.Status() {
	case "not_found":
		return NewTurnNotFoundError(op, h.Ref, h.TurnID)
	case "fenced":
		return failure.Newf(failure.Fenced, op, "epoch %d is fenced: session %s is at epoch %s, which another caller holds; stop this work",
			h.Epoch, h.Ref.Session, r.Text(1)).
			With("epoch", strconv.FormatInt(h.Epoch, 10)).With("current_epoch", r.Text(1))
	case "turn_not_open":
		return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed: it is %s; begin a new turn", h.TurnID, r.Text(1)).
			With("turn_id", h.TurnID).With("outcome", r.Text(1))
	case "turn_over":
		return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed, and its worker may not read session %s any more; stop this work",
			h.TurnID, h.Ref.Session).With("turn_id", h.TurnID)
	case "step_over":
		return failure.Newf(failure.TurnNotOpen, op, "step %s of turn %s is committed, and cannot be changed any more; stop this work",
			r.Text(1), h.TurnID).With("turn_id", h.TurnID).With("step", r.Text(1))
	default:
		return NewUnexpectedReplyError(op, r)
	}
}

// SessionErrorFromReply returns the error for a reply that any call about a session may get.
func SessionErrorFromReply(op string, ref session.Ref, r Reply) error {
	switch r.Status() {
	case "no_session":
		return NewSessionNotFoundError(op, ref)
	case "session_busy":
		return NewSessionBusyError(op, ref, r.Text(1), r.Text(2))
	default:
		return NewUnexpectedReplyError(op, r)
	}
}

// NewStepCommittedError returns the error for a write to a step that is already committed.
func NewStepCommittedError(op string, h memory.Lease, step int) error {
	return failure.Newf(failure.TurnNotOpen, op, "step %d of turn %s was committed with another result, which is kept; continue with the next step",
		step, h.TurnID).With("turn_id", h.TurnID).With("step", strconv.Itoa(step))
}

// NewTurnNotFoundError returns the error for a turn that the session does not have.
func NewTurnNotFoundError(op string, ref session.Ref, turnID string) error {
	return failure.Newf(failure.NotFound, op, "session %s has no turn %s; begin it first", ref.Session, turnID).
		With("session_id", ref.Session).With("turn_id", turnID)
}

// NewSessionNotFoundError returns the error for a session that does not exist.
func NewSessionNotFoundError(op string, ref session.Ref) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", ref.Session).
		With("session_id", ref.Session)
}

// NewSessionBusyError returns the error for a session that has an open turn.
func NewSessionBusyError(op string, ref session.Ref, turnID, traceID string) error {
	return failure.Newf(failure.SessionBusy, op, "session %s is busy with another turn; wait until it ends, or watch its trace", ref.Session).
		With("turn_id", turnID).With("trace_id", traceID)
}

// MaxAttempts bounds how often a call reads a session again because other callers changed it in the meantime. Each
// further attempt means that another caller made progress.
const MaxAttempts = 5

// NewTooManyChangesError returns the error for a session that changed during each of MaxAttempts attempts to read
// it.
func NewTooManyChangesError(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionBusy, op, "session %s changed %d times while it was read; try again later",
		ref.Session, MaxAttempts)
}

// NewRevisionMismatchError returns the error for a change whose required revision is not the current one.
func NewRevisionMismatchError(op, what, given, current string) error {
	return failure.Newf(failure.RevisionMismatch, op, "%s is at revision %s and not %s; read it again and repeat the change", what, current, given).
		With("if_revision", given).With("revision", current)
}

// NewConcurrentChangeError returns the error for a change that a concurrent call may have applied or prevented.
func NewConcurrentChangeError(op string) error {
	return failure.New(failure.SystemNetwork, op, "a concurrent call changed the session, and this change may have been applied; repeat the call")
}

// NewUnencodableError returns the error for text that cannot be stored because it is not valid UTF-8.
func NewUnencodableError(op string, cause error) error {
	return failure.New(failure.UserInvalidInput, op, "the text is not valid UTF-8; send it as UTF-8").Because(cause)
}

// NewUnreadableError returns the error for stored data that cannot be decoded.
func NewUnreadableError(op string, cause error) error {
	return failure.New(failure.Unknown, op, "the stored data cannot be read; the log of the memory service has the cause").Because(cause)
}

// NewUnexpectedReplyError returns the error for a script reply with an unknown status.
func NewUnexpectedReplyError(op string, r Reply) error {
	return NewUnreadableError(op, fmt.Errorf("script replied %q", r.Status()))
}
