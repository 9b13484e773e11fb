package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/retry"
)

// How often an available dependency is checked, and how long a check may take.
const (
	checkInterval = time.Second
	checkTimeout  = time.Second
)

// Dependency is something that a process needs in order to serve. While it is unavailable the process is not
// ready, but the process never ends because of it.
type Dependency struct {
	Condition string // on the board
	Address   string // for people; without credentials
	// Check returns nil if the dependency is available and serves. The board shows the reason of a
	// *NotServingError. For other errors it only shows that the dependency cannot be reached.
	Check func(context.Context) error
	// OnReturn, if set, is called each time the dependency becomes available again.
	OnReturn func(context.Context)
}

// NotServingError is the error of a dependency that answers but does not serve.
type NotServingError struct {
	Reason string // what the board says of it, behind its address: no secret
	Cause  error  // for the log; may be nil
}

// Error implements error.
func (r *NotServingError) Error() string {
	if r.Cause == nil {
		return r.Reason
	}
	return r.Reason + ": " + r.Cause.Error()
}

// Unwrap returns the cause.
func (r *NotServingError) Unwrap() error { return r.Cause }

// DependencyPart keeps the board's condition for a dependency up to date, and logs each change of it. The part
// is ready at once if wait is false, and otherwise when the dependency first answers.
func DependencyPart(board *Board, log *zap.Logger, d Dependency, wait bool) process.Part {
	log = log.With(zap.String("dependency", d.Condition), zap.String("address", d.Address))
	return process.Part{Name: d.Condition, Grace: 2 * checkTimeout, Run: func(ctx context.Context, ready func()) error {
		if !wait {
			ready()
		}
		pace := retry.NewBackoff()
		told := "" // what the log was told last is missing
		for ctx.Err() == nil {
			err := d.check(ctx)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				why := d.boardError(err)
				board.Set(d.Condition, why)
				if why.Error() != told {
					log.Warn("waiting for a dependency", zap.Error(err))
				}
				told = why.Error()
				_ = pace.Wait(ctx) // it ends early only when ctx does
			default:
				pace.Reset()
				if board.Set(d.Condition, nil) {
					log.Info("dependency is there")
					if d.OnReturn != nil {
						d.OnReturn(ctx)
					}
				}
				told = ""
				ready()
				sleep(ctx, checkInterval)
			}
		}
		return nil
	}}
}

// boardError returns the error that the board shows.
func (d Dependency) boardError(err error) error {
	if refusal, ok := errors.AsType[*NotServingError](err); ok {
		return fmt.Errorf("%s %s", d.Address, refusal.Reason)
	}
	return fmt.Errorf("%s cannot be reached", d.Address)
}

func (d Dependency) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return d.Check(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
