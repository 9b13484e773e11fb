// Package startup keeps what an agent has started, and stops it in reverse order.
package startup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// DefaultStopTimeout is how long all stop functions may take together if their context has no deadline.
const DefaultStopTimeout = 10 * time.Second

// Started is what an agent has started: its parts, which are tools and agents, and then the hooks of its author. It is
// not safe for concurrent use.
type Started struct {
	parts, hooks []started
}

// started is a part or a hook that was started.
type started struct {
	name string
	stop func(context.Context) error
}

// AddPart adds a part that was started.
func (s *Started) AddPart(name string, stop func(context.Context) error) {
	s.parts = append(s.parts, started{name, stop})
}

// StartHook runs a start hook. StopHooks runs its stop hook if it succeeded. Both may be nil. A panic counts as an error.
func (s *Started) StartHook(ctx context.Context, name string, a hook.Agent, start, stop func(context.Context, hook.Agent) error) error {
	if start != nil {
		if err := run(ctx, a, start); err != nil {
			return newHookError(a.Name, name, "start", err)
		}
	}
	if stop != nil {
		s.hooks = append(s.hooks, started{name, func(ctx context.Context) error {
			if err := run(ctx, a, stop); err != nil {
				return newHookError(a.Name, name, "stop", err)
			}
			return nil
		}})
	}
	return nil
}

// StopHooks runs the stop hooks in reverse order. Each gets a share of the time that is left, and is abandoned after it.
// The errors of all are joined.
func (s *Started) StopHooks(ctx context.Context) error {
	var failed []error
	for i, h := range slices.Backward(s.hooks) {
		failed = append(failed, h.stopWithin(ctx, i+2)) // the parts get a share, too
	}
	s.hooks = nil
	return errors.Join(failed...)
}

// StopParts stops the parts in reverse order. The errors of all are joined.
func (s *Started) StopParts(ctx context.Context) error {
	var failed []error
	for _, p := range slices.Backward(s.parts) {
		failed = append(failed, p.stop(ctx))
	}
	s.parts = nil
	return errors.Join(failed...)
}

// ClosePlugins closes plugins in reverse order. The errors of all are joined.
func ClosePlugins(plugins []hook.Plugin) error {
	var failed []error
	for _, p := range slices.Backward(plugins) {
		if p.Close != nil {
			failed = append(failed, p.Close())
		}
	}
	return errors.Join(failed...)
}

// run runs a hook. A panic becomes an error.
func run(ctx context.Context, a hook.Agent, fn func(context.Context, hook.Agent) error) (err error) {
	defer panics.Recover("agent.Start", &err)
	return fn(ctx, a)
}

// newHookError returns the error of a hook. It keeps the failure mode and the message of err.
func newHookError(agent, name, verb string, err error) error {
	mode, what := failure.AgentLogic, "the log has the cause"
	if e, ok := errors.AsType[*failure.Error](err); ok && !panics.Is(err) {
		mode, what = e.Mode, e.Message
	}
	return failure.Newf(mode, "agent.Start", "agent %s: %s did not %s: %s", agent, name, verb, what).Because(err)
}

// stopWithin stops h within one of several equal shares of the time that ctx has left. It does not wait longer for it.
func (h started) stopWithin(ctx context.Context, shares int) error {
	left := DefaultStopTimeout
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	ctx, cancel := context.WithTimeout(ctx, left/time.Duration(shares))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.stop(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return failure.Newf(failure.AgentTimeout, "agent.Stop", "%s did not stop in time and was abandoned", h.name).Because(ctx.Err())
	}
}
