package memory

import (
	"strconv"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// What stores refuse of calls that wait, in one place so that all say the same. Op is what was
// called; the modes are those of Turns.

// CheckBegin refuses a turn whose parts do not fit together. Modes: user_invalid_input.
func CheckBegin(op string, b Begin) error {
	switch {
	case b.Continues == "" && len(b.Answers) > 0:
		return failure.New(failure.UserInvalidInput, op, "answers: they answer calls of no turn; name the turn that waits in continues_turn_id").
			With("fields", "answers")
	case b.Continues != "" && len(b.Said()) > 0:
		return failure.New(failure.UserInvalidInput, op, "message: a turn that goes on with calls that wait has none; leave out one of the two").
			With("fields", "message")
	}
	if err := CheckFrom(op, b); err != nil {
		return err
	}
	return CheckAttachments(op, "message.parts", b.Files())
}

// CheckPending refuses calls that cannot wait. Modes: user_invalid_input.
func CheckPending(op string, c Commit) error {
	switch pending := c.Result.Pending; {
	case len(pending) > 0 && c.Outcome != session.Asking(c.Result):
		return failure.Newf(failure.UserInvalidInput, op, "outcome: a step with calls that wait ends its turn with %s; set it, or leave the calls out",
			session.Asking(c.Result)).With("fields", "outcome")
	case len(pending) > execution.MaxPending:
		return failure.Newf(failure.UserInvalidInput, op, "result.pending: %d calls are too many; at most %d of a turn may wait", len(pending), execution.MaxPending).
			With("fields", "result.pending")
	default:
		return nil
	}
}

// NotWaiting says that no call of a turn waits.
func NotWaiting(op, turnID string) error {
	return failure.Newf(failure.TurnNotOpen, op,
		"no call of turn %s waits any more: they were answered, or a turn began without them; begin a turn with a message", turnID).
		With("turn_id", turnID)
}

// WaitedTooLong says that the store has forgotten what a turn with calls that wait had done.
func WaitedTooLong(op, turnID string) error {
	return failure.Newf(failure.TurnNotOpen, op,
		"the calls of turn %s have waited too long: what it had done is forgotten, and doing it again might do harm; begin a turn with a message", turnID).
		With("turn_id", turnID)
}

// NotLast says that only the last step of a turn may wait.
func NotLast(op, turnID string, step int) error {
	return failure.Newf(failure.UserInvalidInput, op, "step %d of turn %s may not wait: a step behind it was committed; only the last may", step, turnID).
		With("turn_id", turnID).With("step", strconv.Itoa(step))
}

// GoesOnFirst says that the step whose calls were answered is committed before all others.
func GoesOnFirst(op, turnID string, step, first int) error {
	return failure.Newf(failure.UserInvalidInput, op, "step %d of turn %s comes too early: step %d goes on first, whose calls were answered", step, turnID, first).
		With("turn_id", turnID).With("step", strconv.Itoa(step))
}
