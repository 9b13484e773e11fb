// Package active tracks the turns that this orchestrator drives, at most one per session, and the requests that
// wait for one of them to end. When the orchestrator stops, the package also drains these turns.
package active

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turn is the handle of a turn that this orchestrator drives.
type Turn struct {
	Ref         session.Ref
	ID          string
	TraceID     string
	MaxChildren int64 // maximum number of concurrent child turns

	stop chan error    // buffered; receives the reason for a stop once
	done chan struct{} // closed when no goroutine of the turn runs any more
}

// NewTurn returns the handle of a turn.
func NewTurn(ref session.Ref, id, traceID string, maxChildren int64) *Turn {
	return &Turn{Ref: ref, ID: id, TraceID: traceID, MaxChildren: maxChildren, stop: make(chan error, 1), done: make(chan struct{})}
}

// Stop asks the turn to end for the given reason, and does not wait. Later reasons are ignored.
func (t *Turn) Stop(why error) {
	select {
	case t.stop <- why:
	default: // a stop was already requested
	}
}

// StopRequests returns the channel through which the driver of the turn receives the reason given to Stop.
func (t *Turn) StopRequests() <-chan error { return t.stop }

// Done returns a channel that is closed when no goroutine of the turn runs any more.
func (t *Turn) Done() <-chan struct{} { return t.done }

// Cancel ends the turn as cancelled. It returns when the turn has ended, or when ctx ends.
func (t *Turn) Cancel(ctx context.Context, reason string) error {
	t.Stop(NewCancelledError(reason))
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewCancelledError returns the error with which a cancelled turn ends. The caller's reason may be empty.
func NewCancelledError(reason string) error {
	why := "the turn was cancelled"
	if reason != "" {
		why += ": " + reason
	}
	return failure.New(failure.UserCancelled, "turn", why)
}
