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

// Startup takes the instance to READY and returns once it is there. The first call runs
// the Start hook, concurrent ones join it, later ones are no-ops (LC-8, LC-9, C-6). It is
// bounded by StartupTimeout and by the deadline of the first caller, all tries together; a
// caller who goes away does not end it. After each try that failed Stop frees what it took,
// and when that fails there is no other try; after the last one the instance is TERMINATED,
// unless KeepFailed, and every caller gets the error (LC-10 to LC-13): agent_timeout when
// time ran out, the hook's own mode, or agent_logic. After Shutdown it fails with
// agent_state.
func (i *Instance) Startup(ctx context.Context) error {
	i.mu.Lock()
	if i.startup == nil && i.status.State == Uninitialized {
		deadline := time.Now().Add(i.cfg.StartupTimeout)
		if callers, ok := ctx.Deadline(); ok && callers.Before(deadline) {
			deadline = callers
		}
		run, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		i.startup = &attempt{cancel: cancel, done: make(chan struct{})}
		i.to(ctx, Initializing, "")
		go i.runStartup(run, i.startup)
	}
	attempt, status := i.startup, i.status
	i.mu.Unlock()

	if attempt == nil || status.State == ShuttingDown || status.State == Terminated {
		return wrongState("Startup", status.State, Uninitialized)
	}
	select {
	case <-attempt.done:
		return attempt.err
	case <-ctx.Done():
		return failure.New(failure.AgentTimeout, "lifecycle.Startup", "the start did not end within the caller's deadline").Because(ctx.Err())
	}
}

func (i *Instance) runStartup(ctx context.Context, a *attempt) {
	defer close(a.done)
	defer a.cancel()
	began := time.Now()
	err := i.start(ctx)
	close(i.hooked)

	i.mu.Lock()
	i.metrics.StartupTime = max(time.Since(began), 1)
	if err == nil && i.status.State == Initializing {
		i.to(ctx, Ready, "")
		i.mu.Unlock()
		return
	}
	i.mu.Unlock()
	if err == nil {
		err = errors.New("a shutdown came first")
	}
	a.err = startupError(err)
	if !i.cfg.KeepFailed {
		<-i.beginShutdown(context.WithoutCancel(ctx), hookTime, "the start failed").done
	}
}

// start runs the Start hook, again after a failure when it may be. What a failed try took
// is freed before the next; what the last one took, by the shutdown that follows it.
func (i *Instance) start(ctx context.Context) error {
	retries := 0
	if i.cfg.RetryOnFailure {
		retries = i.cfg.MaxRetries
	}
	pace := retry.NewBackoff()
	for try := 0; ; try++ {
		err := i.logged("start", i.hook(ctx, "start", i.cfg.Start))
		if err == nil || try == retries || ctx.Err() != nil {
			return err
		}
		if freeErr := i.logged("stop", i.hook(ctx, "stop", i.cfg.Stop)); freeErr != nil {
			return errors.Join(err, freeErr) // nothing may be built upon what is half freed
		}
		if pace.Wait(ctx) != nil {
			return err
		}
	}
}

// logged returns the error, and tells it to the log.
func (i *Instance) logged(step string, err error) error {
	if err != nil {
		i.cfg.Log(step, err)
	}
	return err
}

// startupError keeps the mode of a hook that gave one.
func startupError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return failure.New(failure.AgentTimeout, "lifecycle.Startup", "the start did not end in time; raise lifecycle.timeout or see what hangs").Because(err)
	}
	if _, ok := errors.AsType[*failure.Error](err); ok {
		return err
	}
	return failure.New(failure.AgentLogic, "lifecycle.Startup", "the start failed; the worker's log has the cause").Because(err)
}

// giveUp is how long a hook may take to end once its context has.
const giveUp = 200 * time.Millisecond

var (
	errPanic   = errors.New("panic")
	errGivenUp = errors.New("did not return in time and was given up")
)

// hook runs a hook, contains its panic, and gives it up shortly after ctx ends.
func (i *Instance) hook(ctx context.Context, name string, run func(context.Context) error) error {
	if run == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("%s hook %w: %v\n%s", name, errPanic, p, debug.Stack())
			}
		}()
		done <- run(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(giveUp)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%s hook %w: %w", name, errGivenUp, context.Cause(ctx))
	}
}

func wrongState(verb string, actual State, required ...State) error {
	return failure.Newf(failure.AgentState, "lifecycle."+verb, "the instance is %s; %s needs %v", actual, verb, required).
		With("actual_state", string(actual)).With("required_state", fmt.Sprint(required))
}
