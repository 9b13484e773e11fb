package memory

import (
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
	case b.Continues != "" && len(b.UserMessages()) > 0:
		return failure.New(failure.UserInvalidInput, op, "message: a turn that goes on with calls that wait has none; leave out one of the two").
			With("fields", "message")
	}
	if err := checkOrigin(op, b); err != nil {
		return err
	}
	return CheckAttachments(op, "message.parts", b.NewFiles())
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
