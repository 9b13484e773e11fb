package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Startup takes the instance to READY and returns once it is there. The first call runs
// the Start hook, concurrent ones join it, later ones are no-ops (LC-8, LC-9, C-6). It is
// bounded by ctx of the first caller and by StartupTimeout. When the hook fails, all that
// it took is released, the instance is TERMINATED, and every caller gets the error
// (LC-10, LC-12): agent_timeout when time ran out, the hook's own mode, or agent_logic.
// After Shutdown it fails with agent_state.
func (i *Instance) Startup(ctx context.Context) error {
	i.mu.Lock()
	if i.startup == nil && i.status.State == Uninitialized {
		run, cancel := context.WithTimeout(ctx, i.cfg.StartupTimeout)
		i.startup = &attempt{cancel: cancel, done: make(chan struct{})}
		i.to(Initializing, "")
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
	err := i.hook(ctx, "start", i.cfg.Start)
	close(i.hooked)

	i.mu.Lock()
	i.metrics.StartupTime = max(time.Since(began), 1)
	if err == nil && i.status.State == Initializing {
		i.to(Ready, "")
		i.mu.Unlock()
		return
	}
	i.mu.Unlock()
	if err == nil {
		err = errors.New("a shutdown came first")
	}
	a.err = startupError(err)
	<-i.beginShutdown(0, "startup failed").done
}

// startupError keeps the mode of a hook that gave one.
func startupError(err error) error {
	if _, ok := errors.AsType[*failure.Error](err); ok {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return failure.New(failure.AgentTimeout, "lifecycle.Startup", "the start did not end in time; raise lifecycle.timeout or see what hangs").Because(err)
	}
	return failure.New(failure.AgentLogic, "lifecycle.Startup", "the start failed; the worker's log has the cause").Because(err)
}

// hook runs a hook, contains its panic, and gives it up shortly after ctx ends.
func (i *Instance) hook(ctx context.Context, name string, run func(context.Context) error) error {
	if run == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("%s hook: panic: %v", name, p)
			}
		}()
		done <- run(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(forced)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%s hook: %w; it did not return and was given up", name, ctx.Err())
	}
}

func wrongState(verb string, actual State, required ...State) error {
	return failure.Newf(failure.AgentState, "lifecycle."+verb, "the instance is %s; %s needs %v", actual, verb, required).
		With("actual_state", string(actual)).With("required_state", fmt.Sprint(required))
}
