package inmem

import (
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func noSession(op string, ref session.Ref) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", ref.Session).
		With("session_id", ref.Session)
}

func sessionDeleted(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "session %s was deleted; begin a session with another id", ref.Session).
		With("session_id", ref.Session)
}

func unknownTurn(op string, ref session.Ref, turnID string) error {
	return failure.Newf(failure.NotFound, op, "session %s has no turn %s; begin it first", ref.Session, turnID).
		With("session_id", ref.Session).With("turn_id", turnID)
}

func fenced(op string, h memory.Lease, current int64) error {
	return failure.Newf(failure.Fenced, op, "epoch %d is over: session %s is at epoch %d, so another caller has taken it over; stop this work", h.Epoch, h.Ref.Session, current).
		With("epoch", decimal(h.Epoch)).With("current_epoch", decimal(current))
}

func turnClosed(op string, t *turn) error {
	return failure.Newf(failure.TurnNotOpen, op, "turn %s is closed: it is %s; begin a new turn", t.ID, t.Outcome).
		With("turn_id", t.ID).With("outcome", string(t.Outcome))
}

func stepCommitted(op string, t *turn, step int) error {
	return failure.Newf(failure.TurnNotOpen, op, "step %d of turn %s was committed; go on with the next step", step, t.ID).
		With("turn_id", t.ID).With("step", strconv.Itoa(step))
}

func busy(op string, c *conversed) error {
	return failure.Newf(failure.SessionBusy, op, "session %s works on another turn; wait until it ends, or watch its trace", c.ID).
		With("turn_id", c.OpenTurn).With("trace_id", c.turns[c.OpenTurn].Trace)
}

func (s *Store) full(op string, c *conversed) error {
	messages, bytes := decimal(int64(len(c.log))), decimal(size(c.log))
	return failure.Newf(failure.SessionFull, op,
		"session %s holds %s messages of %s bytes in all; a session may hold %d messages and %d bytes: begin a new session",
		c.ID, messages, bytes, s.cfg.MaxMessages, s.cfg.MaxBytes).
		With("messages", messages).With("max_messages", decimal(s.cfg.MaxMessages)).
		With("bytes", bytes).With("max_bytes", decimal(s.cfg.MaxBytes))
}

func anotherRevision(op string, want, current int64) error {
	return failure.Newf(failure.RevisionMismatch, op, "the revision is %d and not %d; read it again and repeat the change", current, want).
		With("revision", decimal(current))
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
