package failure

import (
	"context"
	"errors"
)

// Superseded reports whether an error says that a step is no longer its attempt's to go on
// with: somebody else has the turn, it is closed, its session is gone, or the attempt does
// something else than the one before it.
func Superseded(err error) bool { return Is(err, Fenced, TurnNotOpen, Nondeterminism, SessionDeleted) }

// Stopped is why ctx was ended, if that was a failure, because of err; and else err itself.
func Stopped(ctx context.Context, err error) error {
	if stopped, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return stopped.Because(err)
	}
	return err
}
