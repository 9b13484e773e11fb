package redisstore

import (
	"fmt"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// barred is for the replies that every script may give.
func barred(op string, ref session.Ref, r reply) error {
	switch r.status() {
	case "deleted":
		return deleted(op, ref)
	case "schema":
		return unreadable(op, fmt.Errorf("session %s has schema %s and not %s", ref.Session, r.text(1), schema))
	default:
		return nil
	}
}

func deleted(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "session %s was deleted; begin a new session", ref.Session).
		With("session_id", ref.Session)
}

// refused is for the replies that every write in the name of a turn may get, and what its worker reads.
func refused(op string, h memory.Hold, r reply) error {
	switch r.status() {
	case "not_found":
		return unknownTurn(op, h.Ref, h.TurnID)
	case "fenced":
		return failure.Newf(failure.Fenced, op, "epoch %d is over: session %s is at epoch %s, somebody else goes on with it; stop this work", h.Epoch, h.Ref.Session, r.text(1)).
			With("epoch", strconv.FormatInt(h.Epoch, 10)).With("current_epoch", r.text(1))
	case "turn_not_open":
		return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed: it is %s; begin a new turn", h.TurnID, r.text(1)).
			With("turn_id", h.TurnID).With("outcome", r.text(1))
	case "turn_over":
		return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed, and its worker reads nothing more of session %s; stop this work", h.TurnID, h.Ref.Session).
			With("turn_id", h.TurnID)
	case "step_over":
		return failure.Newf(failure.TurnNotOpen, op, "step %s of turn %s is committed, and nothing more is written for it; stop this work", r.text(1), h.TurnID).
			With("turn_id", h.TurnID).With("step", r.text(1))
	default:
		return unexpected(op, r)
	}
}

func committed(op string, h memory.Hold, step int) error {
	return failure.Newf(failure.TurnNotOpen, op, "step %d of turn %s was committed with another result, which stays; go on with the next step", step, h.TurnID).
		With("turn_id", h.TurnID).With("step", strconv.Itoa(step))
}

func unknownTurn(op string, ref session.Ref, turnID string) error {
	return failure.Newf(failure.NotFound, op, "session %s has no turn %s; begin it first", ref.Session, turnID).
		With("session_id", ref.Session).With("turn_id", turnID)
}

func noSession(op string, ref session.Ref) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", ref.Session).
		With("session_id", ref.Session)
}

func busy(op string, ref session.Ref, turnID, traceID string) error {
	return failure.Newf(failure.SessionBusy, op,
		"session %s works on another turn; wait until it ends, or watch its trace", ref.Session).
		With("turn_id", turnID).With("trace_id", traceID)
}

func (s *Store) full(op string, ref session.Ref, r reply) error {
	return failure.Newf(failure.SessionFull, op,
		"session %s holds %s messages of %d bytes in all; a session may hold %d messages and %d bytes: compact it or begin a new one",
		ref.Session, r.text(1), number(r.text(2)), s.cfg.MaxMessages, s.cfg.MaxBytes).
		With("messages", r.text(1)).With("max_messages", strconv.FormatInt(s.cfg.MaxMessages, 10)).
		With("bytes", r.text(2)).With("max_bytes", strconv.FormatInt(s.cfg.MaxBytes, 10))
}

// stateFull is for the reply {"state_full", keys, bytes} of a script that changes a scope.
func stateFull(op string, scope memory.Scope, r reply) error {
	return failure.Newf(failure.ResourceQuota, op,
		"state: the %s scope would hold %s keys and %s bytes; it may hold %d keys and %d bytes: remove some, or store what is big as an artifact",
		scope, r.text(1), r.text(2), memory.MaxStateKeys, memory.MaxStateBytes).
		With("scope", string(scope)).With("keys", r.text(1)).With("bytes", r.text(2))
}

func noUser(op string, ref session.Ref) error {
	return failure.Newf(failure.UserInvalidInput, op, "state: session %s has no user, so it has no user: keys; begin a session with a user", ref.Session).
		With("session_id", ref.Session)
}

func unencodable(op string, cause error) error {
	return failure.New(failure.UserInvalidInput, op, "the text is not valid UTF-8; send it as UTF-8").Because(cause)
}

func unreadable(op string, cause error) error {
	return failure.New(failure.Unknown, op, "what the store holds cannot be read; the log of the memory service has the cause").Because(cause)
}

func unexpected(op string, r reply) error {
	return unreadable(op, fmt.Errorf("script replied %q", r.status()))
}
