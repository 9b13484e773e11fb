package memory

import (
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// CheckBegin rejects a request whose fields do not fit together. Modes: user_invalid_input.
func CheckBegin(op string, b Begin) error {
	switch {
	case b.Predecessor.Continues == "" && len(b.Predecessor.Answers) > 0:
		return failure.New(failure.UserInvalidInput, op, "answers: there are answers without a turn; name the waiting turn in continues_turn_id").
			With("fields", "answers")
	case b.Predecessor.Continues != "" && len(b.UserMessages()) > 0:
		return failure.New(failure.UserInvalidInput, op, "message: a turn that continues with answers has no message; leave out one of the two").
			With("fields", "message")
	}
	if err := checkPredecessor(op, b); err != nil {
		return err
	}
	return CheckAttachments(op, "message.parts", b.NewFiles())
}

// CheckPending rejects waiting calls that the outcome does not allow, or that are too many. Modes:
// user_invalid_input.
func CheckPending(op string, c Commit) error {
	switch pending := c.Result.Pending; {
	case len(pending) > 0 && c.Outcome != session.InputOutcome(c.Result):
		return failure.Newf(failure.UserInvalidInput, op, "outcome: a step with calls that wait ends its turn with %s; set it, or leave the calls out",
			session.InputOutcome(c.Result)).With("fields", "outcome")
	case len(pending) > execution.MaxPending:
		return failure.Newf(failure.UserInvalidInput, op, "result.pending: %d calls are too many; at most %d of a turn may wait", len(pending),
			execution.MaxPending).
			With("fields", "result.pending")
	default:
		return nil
	}
}
