// Package stop detects that a run of the loop must stop, and interrupts its running calls.
package stop

import (
	"context"
	"errors"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// ErrStopped is the cancellation cause of a model call or tool call that a stop interrupted (CO-63).
var ErrStopped = errors.New("the turn is to stop")

// ErrConsumerGone ends a run whose consumer has stopped reading events (AD-10).
var ErrConsumerGone = errors.New("the consumer of the events is gone")

// Signal tells whether a run must stop, because a handler or the caller of the run requested it.
type Signal struct {
	progress      *turnstate.Progress
	callerStop    context.Context //nolint:containedctx // a second signal besides the context that ends the run
	ignoresCaller bool
}

// New returns the stop signal of a run. The caller of the run requests a stop by ending the context request (nil
// if it never does).
func New(request context.Context, progress *turnstate.Progress) *Signal {
	return &Signal{progress: progress, callerStop: request}
}

// IsRequested reports whether a stop was requested.
func (s *Signal) IsRequested() bool { return s.progress.StopReason() != "" || s.isCallerDone() }

// IsFinishing reports whether a stop was requested or a handler ended the run.
func (s *Signal) IsFinishing() bool { return s.IsRequested() || s.progress.Ended() }

// isCallerDone reports whether the caller requested a stop. Contexts returned by ContextWithStop end shortly
// after.
func (s *Signal) isCallerDone() bool { return s.watchesCaller() && s.callerStop.Err() != nil }

func (s *Signal) watchesCaller() bool { return s.callerStop != nil && !s.ignoresCaller }

// IgnoreCaller makes the signal ignore the caller from now on, because the stop was applied or comes too late.
func (s *Signal) IgnoreCaller() { s.ignoresCaller = true }

// ContextWithStop returns a context that ends when ctx ends or the caller requests a stop. The returned function
// releases its resources.
func (s *Signal) ContextWithStop(ctx context.Context) (context.Context, func()) {
	if !s.watchesCaller() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(s.callerStop, func() { cancel(ErrStopped) })
	return ctx, func() { release(); cancel(nil) }
}

// RunHandlers runs handlers that may wait, for a person or for a rate limit. Their context ends when the caller
// requests a stop (CO-63).
func (s *Signal) RunHandlers(ctx context.Context, handlers func(context.Context) error) error {
	ctx, done := s.ContextWithStop(ctx)
	defer done()
	if err := handlers(ctx); err == nil || ctx.Err() == nil {
		return err
	}
	return s.Cause(ctx)
}

// IsInterrupted reports whether a call with a context from ContextWithStop must be abandoned.
func (s *Signal) IsInterrupted(ctx context.Context) bool { return s.isCallerDone() || ctx.Err() != nil }

// Cause returns why a call was interrupted: ErrStopped, or an error for the caller of the run.
func (s *Signal) Cause(ctx context.Context) error {
	if s.isCallerDone() {
		return ErrStopped
	}
	return NewContextError(ctx)
}

// IgnoreErrStopped returns nil if err is ErrStopped, and otherwise err. ErrStopped means that a stop interrupted a
// handler. The run notices the stop at its next check.
func IgnoreErrStopped(err error) error {
	if errors.Is(err, ErrStopped) {
		return nil
	}
	return err
}

// NewContextError returns the error for a step whose context ended. Modes: agent_timeout, user_cancelled.
func NewContextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure.New(failure.AgentTimeout, "loop.Run",
			"the agent took longer than it may; raise its limits.timeout, or ask for less").Because(cause)
	}
	return failure.New(failure.UserCancelled, "loop.Run", "the step was cancelled").Because(cause)
}
