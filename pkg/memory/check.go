package memory

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/attachment"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Check rejects a request whose fields do not fit together. Modes: user_invalid_input.
func (b Begin) Check(op string) error {
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
	return attachment.Check(op, "message.parts", b.NewFiles())
}

// Check rejects a commit whose state, waiting calls or rounds cannot be stored. Modes: state_violation and
// user_invalid_input, as for CheckDelta.
func (c Commit) Check(op string) error {
	if err := CheckDelta(op, c.State); err != nil {
		return err
	}
	if err := checkExpected(op, c); err != nil {
		return err
	}
	if err := checkPending(op, c); err != nil {
		return err
	}
	return checkRounds(op, c)
}

// checkExpected rejects a revision of a key that the commit does not change, or that no other session can change. Modes:
// user_invalid_input.
func checkExpected(op string, c Commit) error {
	for _, key := range slices.Sorted(maps.Keys(c.Expected)) {
		_, changed := c.State[key]
		switch {
		case !changed:
			return failure.Newf(failure.UserInvalidInput, op, "expected: the commit does not change the key %q; leave it out", key).With("key", key)
		case ScopeOf(key) == ScopeSession:
			return failure.Newf(failure.UserInvalidInput, op, "expected: no other session changes the key %q; name only keys of app: and user:", key).
				With("key", key)
		case c.Expected[key] < 0:
			return failure.Newf(failure.UserInvalidInput, op, "expected: the revision of the key %q is %d; it is 0 or more", key, c.Expected[key]).
				With("key", key)
		}
	}
	return nil
}

// Check rejects an end of a turn whose outcome and results do not fit together. Modes: user_invalid_input.
func (f Fail) Check(op string) error {
	switch waits := f.Outcome.NeedsInput(); {
	case !waits && f.Failure == nil:
		return failure.Newf(failure.UserInvalidInput, op, "failure: a turn that ends with %s needs a reason", f.Outcome).With("fields", "failure")
	case !waits && len(f.Results) > 0:
		return failure.Newf(failure.UserInvalidInput, op, "results: a turn that ends with %s stores none; leave them out", f.Outcome).With("fields", "results")
	case !waits:
		return nil
	}
	waiting := 0
	for i, r := range f.Results {
		waiting += len(r.Pending)
		switch {
		case len(r.Pending) == 0 && r.Failure == nil:
			return failure.Newf(failure.UserInvalidInput, op, "results[%d]: step %d neither waits nor failed; commit it", i, r.Step).With("fields", "results")
		case i > 0 && r.Step <= f.Results[i-1].Step:
			return failure.Newf(failure.UserInvalidInput, op, "results[%d].step: %d does not follow %d; sort the results by step", i, r.Step, f.Results[i-1].Step).
				With("fields", "results.step")
		}
	}
	switch {
	case waiting == 0 || f.Outcome != session.InputOutcome(f.Results...):
		return failure.Newf(failure.UserInvalidInput, op, "outcome: %d calls of the results wait, which is not %s", waiting, f.Outcome).With("fields", "outcome")
	case waiting > execution.MaxPending:
		return newTooManyPendingError(op, "results.pending", waiting)
	}
	return nil
}

func newTooManyPendingError(op, field string, calls int) error {
	return failure.Newf(failure.UserInvalidInput, op, "%s: %d calls are too many; at most %d of a turn may wait", field, calls, execution.MaxPending).
		With("fields", field)
}

// checkPending rejects waiting calls that the outcome does not allow, or that are too many. Modes: user_invalid_input.
func checkPending(op string, c Commit) error {
	switch pending := c.Result.Pending; {
	case len(pending) > 0 && c.Outcome != session.InputOutcome(c.Result):
		return failure.Newf(failure.UserInvalidInput, op, "outcome: a step with calls that wait ends its turn with %s; set it, or leave the calls out",
			session.InputOutcome(c.Result)).With("fields", "outcome")
	case len(pending) > execution.MaxPending:
		return newTooManyPendingError(op, "result.pending", len(pending))
	default:
		return nil
	}
}
