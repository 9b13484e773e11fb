package failure

import (
	"context"
	"errors"
)

// IsSuperseded reports whether err means that an attempt no longer owns its step. Another attempt took the turn
// over, the turn is closed, the session is deleted, or the rerun differs from its journal. The attempt must end
// without writing anything.
func IsSuperseded(err error) bool {
	return Is(err, Fenced, TurnNotOpen, Nondeterminism, SessionDeleted)
}

// FromCause returns the Error with which ctx was cancelled, with err as its cause. It returns err unchanged if ctx
// is not done, or ended for another reason.
func FromCause(ctx context.Context, err error) error {
	if cause, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return cause.Because(err)
	}
	return err
}
