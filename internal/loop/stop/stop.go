// Package stop tells a run of the loop that it is to stop, and interrupts running calls.
package stop

import (
	"context"
	"errors"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// ErrStopped is the cause of the context of a model or tool that a stop interrupted (CO-63).
var ErrStopped = errors.New("the turn is to stop")

// ErrConsumerGone ends a run whose caller reads no more events (AD-10).
var ErrConsumerGone = errors.New("the consumer of the events is gone")

// Signal tells whether a run is to stop, because a handler or the caller of the run asked for it.
type Signal struct {
	progress *turnstate.Progress
	request  context.Context //nolint:containedctx // a second signal besides the context that ends the run
	disabled bool
}

// New returns the signal of a run. It is set when request ends (nil when the caller cannot ask).
func New(request context.Context, progress *turnstate.Progress) *Signal {
	return &Signal{progress: progress, request: request}
}

// Requested reports whether the run is to stop.
func (s *Signal) Requested() bool { return s.progress.StopReason() != "" || s.received() }

// Finishing reports whether the run is to stop, or a handler ended it.
func (s *Signal) Finishing() bool { return s.Requested() || s.progress.Ended() }

// received reports whether the caller asked. The contexts that Context returned end a moment later.
func (s *Signal) received() bool { return s.isActive() && s.request.Err() != nil }

func (s *Signal) isActive() bool { return s.request != nil && !s.disabled }

// Disable makes the signal ignore the caller from now on, because the stop was applied or comes too late.
func (s *Signal) Disable() { s.disabled = true }

// Context returns a context that ends with ctx, and when the caller asks the run to stop. Call the returned function to
// release it.
func (s *Signal) Context(ctx context.Context) (context.Context, func()) {
	if !s.isActive() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(s.request, func() { cancel(ErrStopped) })
	return ctx, func() { release(); cancel(nil) }
}

// RunHandlers runs handlers that may wait, for a person or until a rate allows them to continue. Their context ends
// when the caller asks the run to stop (CO-63).
func (s *Signal) RunHandlers(ctx context.Context, handlers func(context.Context) error) error {
	ctx, done := s.Context(ctx)
	defer done()
	if err := handlers(ctx); err == nil || ctx.Err() == nil {
		return err
	}
	return s.Cause(ctx)
}

// Interrupted reports whether a call under ctx, which Context returned, must be abandoned.
func (s *Signal) Interrupted(ctx context.Context) bool { return s.received() || ctx.Err() != nil }

// Cause returns why a call under ctx is abandoned: ErrStopped, or an error for the caller of the run.
func (s *Signal) Cause(ctx context.Context) error {
	if s.received() {
		return ErrStopped
	}
	return ContextError(ctx)
}

// WithoutStop returns err, or nil if err is ErrStopped. In that case a stop interrupted a handler that asked the
// model; the run notices the stop at its next check.
func WithoutStop(err error) error {
	if errors.Is(err, ErrStopped) {
		return nil
	}
	return err
}

// ContextError returns the error of a step whose context ended. Modes: agent_timeout, user_cancelled.
func ContextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure.New(failure.AgentTimeout, "loop.Run",
			"the agent took longer than it may; raise its limits.timeout, or ask for less").Because(cause)
	}
	return failure.New(failure.UserCancelled, "loop.Run", "the step was cancelled").Because(cause)
}
