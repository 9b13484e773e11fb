// Package active knows which turns this orchestrator drives, at most one per session, and which
// requests wait for one of them to end. It also ends all of them when the orchestrator stops.
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
	Trace       string
	MaxChildren int64 // how many turns may run below it at once

	stop chan error    // takes one: why the turn should end
	done chan struct{} // closed when nothing of the turn runs any more
}

// NewTurn returns the handle of a turn.
func NewTurn(ref session.Ref, id, traceID string, fanOut int64) *Turn {
	return &Turn{Ref: ref, ID: id, Trace: traceID, MaxChildren: fanOut, stop: make(chan error, 1), done: make(chan struct{})}
}

// Stop asks the turn to end, and does not wait. The first reason counts.
func (t *Turn) Stop(why error) {
	select {
	case t.stop <- why:
	default: // it was asked before
	}
}

// StopRequests returns the channel that delivers the reason of Stop to the driver of the turn.
func (t *Turn) StopRequests() <-chan error { return t.stop }

// Done returns a channel that is closed when no goroutine of the turn runs any more.
func (t *Turn) Done() <-chan struct{} { return t.done }

// Cancel ends the turn as cancelled. It returns when the turn has ended, or when ctx ends.
func (t *Turn) Cancel(ctx context.Context, reason string) error {
	t.Stop(CancelledError(reason))
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CancelledError returns the error with which a cancelled turn ends. The caller's reason may be empty.
func CancelledError(reason string) error {
	why := "the turn was cancelled"
	if reason != "" {
		why += ": " + reason
	}
	return failure.New(failure.UserCancelled, "turn", why)
}
