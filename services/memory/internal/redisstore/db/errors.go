package db

import (
	"fmt"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// sessionError returns the error for a reply that any script may give about its session, or nil.
func sessionError(op string, ref session.Ref, r Reply) error {
	switch r.Status() {
	case "deleted":
		return deletedError(op, ref)
	case "schema":
		return Unreadable(op, fmt.Errorf("session %s has schema %s instead of %s", ref.Session, r.Text(1), Schema))
	default:
		return nil
	}
}

func deletedError(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "session %s was deleted; begin a new session", ref.Session).
		With("session_id", ref.Session)
}

// Done returns the error of a write that returns no value, or nil when the script replied ok.
func Done(op string, h memory.Lease, r Reply, err error) error {
	if err != nil || r.Status() == "ok" {
		return err
	}
	return Rejected(op, h, r)
}

// Rejected returns the error for a reply that any call on behalf of a turn may get.
func Rejected(op string, h memory.Lease, r Reply) error {
	switch r.Status() {
	case "not_found":
		return UnknownTurn(op, h.Ref, h.TurnID)
	case "fenced":
		return failure.Newf(failure.Fenced, op, "epoch %d is fenced: session %s is at epoch %s, which another caller holds; stop this work",
			h.Epoch, h.Ref.Session, r.Text(1)).
			With("epoch", strconv.FormatInt(h.Epoch, 10)).With("current_epoch", r.Text(1))
	case "turn_not_open":
		return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed: it is %s; begin a new turn", h.TurnID, r.Text(1)).
			With("turn_id", h.TurnID).With("outcome", r.Text(1))
	case "turn_over":
		return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed, and its worker reads nothing more of session %s; stop this work",
			h.TurnID, h.Ref.Session).With("turn_id", h.TurnID)
	case "step_over":
		return failure.Newf(failure.TurnNotOpen, op, "step %s of turn %s is committed, and nothing more is written for it; stop this work",
			r.Text(1), h.TurnID).With("turn_id", h.TurnID).With("step", r.Text(1))
	default:
		return Unexpected(op, r)
	}
}

// RejectedSession returns the error for a reply that any call about a session may get.
func RejectedSession(op string, ref session.Ref, r Reply) error {
	switch r.Status() {
	case "no_session":
		return NoSession(op, ref)
	case "session_busy":
		return Busy(op, ref, r.Text(1), r.Text(2))
	default:
		return Unexpected(op, r)
	}
}

// StepCommitted returns the error for a write to a step that has a result already.
func StepCommitted(op string, h memory.Lease, step int) error {
	return failure.Newf(failure.TurnNotOpen, op, "step %d of turn %s was committed with another result, which stays; go on with the next step",
		step, h.TurnID).With("turn_id", h.TurnID).With("step", strconv.Itoa(step))
}

// UnknownTurn returns the error for a turn that the session does not have.
func UnknownTurn(op string, ref session.Ref, turnID string) error {
	return failure.Newf(failure.NotFound, op, "session %s has no turn %s; begin it first", ref.Session, turnID).
		With("session_id", ref.Session).With("turn_id", turnID)
}

// NoSession returns the error for a session that does not exist.
func NoSession(op string, ref session.Ref) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", ref.Session).
		With("session_id", ref.Session)
}

// Busy returns the error for a session that has an open turn.
func Busy(op string, ref session.Ref, turnID, traceID string) error {
	return failure.Newf(failure.SessionBusy, op, "session %s works on another turn; wait until it ends, or watch its trace", ref.Session).
		With("turn_id", turnID).With("trace_id", traceID)
}

// MaxAttempts bounds how often a call reads a session again because other callers changed it meanwhile.
// Each further attempt means that another caller made progress.
const MaxAttempts = 5

// KeepsChanging returns the error for a session that changed during each of MaxAttempts attempts.
func KeepsChanging(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionBusy, op, "session %s changed %d times while it was read; try again when less happens",
		ref.Session, MaxAttempts)
}

// RevisionMismatch returns the error for a change that was made to another revision.
func RevisionMismatch(op, what, given, current string) error {
	return failure.Newf(failure.RevisionMismatch, op, "%s is at revision %s and not %s; read it again and repeat the change", what, current, given).
		With("if_revision", given).With("revision", current)
}

// Interfered returns the error for a change that another caller may have made, or kept from being made.
func Interfered(op string) error {
	return failure.New(failure.SystemNetwork, op, "the change met others of its session, and may have been made; repeat the call")
}

// Unencodable returns the error for text of a caller that cannot be stored.
func Unencodable(op string, cause error) error {
	return failure.New(failure.UserInvalidInput, op, "the text is not valid UTF-8; send it as UTF-8").Because(cause)
}

// Unreadable returns the error for stored data that cannot be decoded.
func Unreadable(op string, cause error) error {
	return failure.New(failure.Unknown, op, "what the store holds cannot be read; the log of the memory service has the cause").Because(cause)
}

// Unexpected returns the error for a reply that the caller of the script does not know.
func Unexpected(op string, r Reply) error {
	return Unreadable(op, fmt.Errorf("script replied %q", r.Status()))
}
