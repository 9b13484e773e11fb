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

// These constants bound how often an available dependency is checked, and how long one check may take.
const (
	checkInterval = time.Second
	checkTimeout  = time.Second
)

// Dependency is a service that a process needs in order to serve, such as a database. While it is unavailable the
// process is not ready, but the process keeps running.
type Dependency struct {
	Condition string // name of its condition on the board
	Address   string // shown to people; contains no credentials
	// Check returns nil if the dependency is reachable and can serve. The board shows the reason of a
	// *NotServingError. For other errors it only shows that the dependency cannot be reached.
	Check func(context.Context) error
	// OnAvailable, if set, is called each time that the dependency becomes available, including the first time.
	OnAvailable func(context.Context)
}

// NotServingError reports a dependency that replies but cannot serve.
type NotServingError struct {
	Reason string // shown on the board after the address; contains no secret
	Cause  error  // for the log; may be nil
}

// Error implements error.
func (n *NotServingError) Error() string {
	if n.Cause == nil {
		return n.Reason
	}
	return n.Reason + ": " + n.Cause.Error()
}

// Unwrap returns the cause.
func (n *NotServingError) Unwrap() error { return n.Cause }

// DependencyPart returns a part that checks a dependency, updates its condition on the board and logs each change.
// If wait is false, the part is ready at once. Otherwise it is ready when the dependency first becomes available.
func DependencyPart(board *Board, log *zap.Logger, d Dependency, wait bool) process.Part {
	log = log.With(zap.String("dependency", d.Condition), zap.String("address", d.Address))
	return process.Part{Name: d.Condition, Grace: 2 * checkTimeout, Run: func(ctx context.Context, ready func()) error {
		if !wait {
			ready()
		}
		pace := retry.NewBackoff()
		logged := "" // reason logged last
		for ctx.Err() == nil {
			err := d.check(ctx)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				why := d.boardError(err)
				board.Set(d.Condition, why)
				if why.Error() != logged {
					log.Warn("waiting for a dependency", zap.Error(err))
				}
				logged = why.Error()
				_ = pace.Wait(ctx) // the error means that ctx ended, which the loop checks
			default:
				pace.Reset()
				if board.Set(d.Condition, nil) {
					log.Info("dependency is available")
					if d.OnAvailable != nil {
						d.OnAvailable(ctx)
					}
				}
				logged = ""
				ready()
				sleep(ctx, checkInterval)
			}
		}
		return nil
	}}
}

// boardError returns the error to show on the board for err. It hides errors that may hold a secret.
func (d Dependency) boardError(err error) error {
	if notServing, ok := errors.AsType[*NotServingError](err); ok {
		return fmt.Errorf("%s %s", d.Address, notServing.Reason)
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
