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

// hookGrace is how long a hook may continue after its context has ended.
const hookGrace = 200 * time.Millisecond

var (
	errPanic     = errors.New("panic")
	errAbandoned = errors.New("did not return in time and was abandoned")
)

// hooks runs the hooks of an instance. It recovers from their panics, abandons hooks that hang, and logs their
// errors.
type hooks struct{ cfg Config }

// runStart runs the Start hook, and retries it. Before each retry, Stop frees the resources
// of the failed try. After the last try, the caller must free them.
func (h hooks) runStart(ctx context.Context, retries int) error {
	backoff := retry.NewBackoff()
	for try := 0; ; try++ {
		err := h.logError("start", h.runHook(ctx, "start", h.cfg.Start))
		if err == nil || try == retries || ctx.Err() != nil {
			return err
		}
		if stopErr := h.logError("stop", h.runHook(ctx, "stop", h.cfg.Stop)); stopErr != nil {
			return errors.Join(err, stopErr) // a new try must not use partly freed resources
		}
		if backoff.Wait(ctx) != nil {
			return err
		}
	}
}

// runAtShutdown runs a hook of the shutdown. The message of the returned error is for the caller of Shutdown, and
// its cause is for the log.
func (h hooks) runAtShutdown(ctx context.Context, name string, hook func(context.Context) error) error {
	err := h.logError(name, h.runHook(ctx, name, hook))
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

// runHook runs a hook, unless it is nil. A panic becomes an error. A hook that is still running hookGrace after
// ctx has ended is abandoned.
func (h hooks) runHook(ctx context.Context, name string, hook func(context.Context) error) error {
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

// logError logs an error, unless it is nil, and returns it.
func (h hooks) logError(phase string, err error) error {
	if err != nil {
		h.cfg.LogError(phase, err)
	}
	return err
}
