package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// hookGrace is how long a hook may take to return after its context ended.
const hookGrace = 200 * time.Millisecond

var (
	errPanic     = errors.New("panic")
	errAbandoned = errors.New("did not return in time and was abandoned")
)

// hooks runs the hooks of an instance. It contains their panics, abandons those that hang, and logs their
// errors.
type hooks struct{ cfg Config }

// start runs the Start hook, with retries if they are configured. Stop frees what a failed try took
// before the next try. After the last try the caller must do so.
func (h hooks) start(ctx context.Context) error {
	retries := 0
	if h.cfg.RetryOnFailure {
		retries = h.cfg.MaxRetries
	}
	backoff := retry.NewBackoff()
	for try := 0; ; try++ {
		err := h.log("start", h.run(ctx, "start", h.cfg.Start))
		if err == nil || try == retries || ctx.Err() != nil {
			return err
		}
		if stopErr := h.log("stop", h.run(ctx, "stop", h.cfg.Stop)); stopErr != nil {
			return errors.Join(err, stopErr) // a new try must not build on resources that are half freed
		}
		if backoff.Wait(ctx) != nil {
			return err
		}
	}
}

// runAtShutdown runs a hook of the shutdown. The message of its error is for the caller of the shutdown,
// and its cause is for the log.
func (h hooks) runAtShutdown(ctx context.Context, name string, hook func(context.Context) error) error {
	err := h.log(name, h.run(ctx, name, hook))
	if err == nil {
		return nil
	}
	why := "failed; the worker's log has the cause"
	switch public, ok := errors.AsType[*failure.Error](err); {
	case ok:
		why = "failed: " + public.Message
	case errors.Is(err, errPanic):
		why = "panicked; the worker's log has the cause"
	case errors.Is(err, errAbandoned):
		why = errAbandoned.Error()
	}
	return failure.Newf(failure.AgentLogic, "lifecycle.Shutdown", "the %s hook %s", name, why).Because(err)
}

// run runs a hook (nil does nothing). A panic becomes an error. A hook that is still running hookGrace
// after ctx ended is abandoned.
func (h hooks) run(ctx context.Context, name string, hook func(context.Context) error) error {
	if hook == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("%s hook %w: %v\n%s", name, errPanic, p, debug.Stack())
			}
		}()
		done <- hook(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(hookGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%s hook %w: %w", name, errAbandoned, context.Cause(ctx))
	}
}

// log logs an error, if there is one, and returns it.
func (h hooks) log(phase string, err error) error {
	if err != nil {
		h.cfg.Log(phase, err)
	}
	return err
}
