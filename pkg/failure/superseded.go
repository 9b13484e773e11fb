package failure

import (
	"context"
	"errors"
)

// IsSuperseded reports whether err means that an attempt has lost its step: another attempt took the
// turn over, the turn is closed, the session is deleted, or a repeated run differs from its journal.
// The attempt must end without writing anything.
func IsSuperseded(err error) bool {
	return Is(err, Fenced, TurnNotOpen, Nondeterminism, SessionDeleted)
}

// FromCause returns the Error that ctx was cancelled with, caused by err. It returns err itself when
// ctx runs, or ended for another reason.
func FromCause(ctx context.Context, err error) error {
	if cause, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return cause.Because(err)
	}
	return err
}
