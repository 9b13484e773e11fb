package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/wire"
)

// stateAfter is the state of a session whose turn ended so.
var stateAfter = map[session.Outcome]session.State{
	session.OutcomeCompleted:     session.Ready,
	session.OutcomeInputRequired: session.InputRequired,
	session.OutcomeFailed:        session.Failed,
	session.OutcomeCancelled:     session.Ready,
}

// CommitStep implements memory.Turns.
func (s *Store) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	const op = "memory.CommitStep"
	last := c.Base + int64(len(c.Messages))
	c.Result.Sequence = last
	result, err := encoding.Marshal(wire.ResultToProto(c.Result))
	if err != nil {
		return 0, unencodable(op, err)
	}
	bodies := make([]any, len(c.Messages))
	parts := [][]byte{[]byte(c.Outcome), result}
	for i, m := range c.Messages {
		b, err := body(m)
		if err != nil {
			return 0, unencodable(op, err)
		}
		bodies[i], parts = b, append(parts, b)
	}
	args := append([]any{
		c.Epoch, c.Base, c.Result.Step, digest(parts), result,
		string(c.Outcome), string(stateAfter[c.Outcome]), retention.Milliseconds(),
		s.cfg.MaxMessages, s.cfg.MaxBytes,
	}, bodies...)
	r, err := s.run(ctx, op, s.commit, keys(c.Ref, c.TurnID), args)
	if err != nil {
		return 0, err
	}
	switch r.status() {
	case "ok":
		return last, nil
	case "turn_not_open":
		return 0, failure.Newf(failure.TurnNotOpen, op, "turn %s is closed: it is %s; begin a new turn", c.TurnID, r.text(1)).
			With("turn_id", c.TurnID).With("outcome", r.text(1))
	case "step_committed":
		return 0, failure.Newf(failure.TurnNotOpen, op, "step %d of turn %s was committed with another result, which stays; go on with the next step", c.Result.Step, c.TurnID).
			With("turn_id", c.TurnID).With("step", strconv.Itoa(c.Result.Step))
	case "base_mismatch":
		return 0, failure.Newf(failure.BaseMismatch, op, "session %s goes up to message %s and not %d; load the history again and repeat the step", c.Ref.Session, r.text(1), c.Base).
			With("base_sequence", strconv.FormatInt(c.Base, 10)).With("last_sequence", r.text(1))
	case "session_full":
		return 0, s.full(op, c.Ref, r)
	default:
		return 0, refused(op, c.Ref, c.TurnID, c.Epoch, r)
	}
}

// FailTurn implements memory.Turns.
func (s *Store) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	const op = "memory.FailTurn"
	why, err := encoding.Marshal(wire.FailToProto(f).GetFailure())
	if err != nil {
		return session.Turn{}, unencodable(op, err)
	}
	r, err := s.run(ctx, op, s.fail, keys(f.Ref, f.TurnID), []any{
		f.Epoch, string(f.Outcome), why, string(stateAfter[f.Outcome]), retention.Milliseconds(),
	})
	if err != nil {
		return session.Turn{}, err
	}
	if r.status() != "closed" {
		return session.Turn{}, refused(op, f.Ref, f.TurnID, f.Epoch, r)
	}
	t, err := r.turn(1, f.TurnID)
	if err != nil {
		return session.Turn{}, unreadable(op, err)
	}
	return t, nil
}

// refused is for the replies that every write of a turn may get.
func refused(op string, ref session.Ref, turnID string, epoch int64, r reply) error {
	switch r.status() {
	case "not_found":
		return unknownTurn(op, ref, turnID)
	case "fenced":
		return failure.Newf(failure.Fenced, op, "epoch %d is over: session %s is at epoch %s, somebody else goes on with it; stop this work", epoch, ref.Session, r.text(1)).
			With("epoch", strconv.FormatInt(epoch, 10)).With("current_epoch", r.text(1))
	default:
		return unexpected(op, r)
	}
}

func unknownTurn(op string, ref session.Ref, turnID string) error {
	return failure.Newf(failure.NotFound, op, "session %s has no turn %s; begin it first", ref.Session, turnID).
		With("session_id", ref.Session).With("turn_id", turnID)
}

// digest is the same for the same parts only: each goes in with its length.
func digest(parts [][]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
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
