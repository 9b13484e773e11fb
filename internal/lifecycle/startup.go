package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Settings change how an instance starts and what its shutdown persists. Fields without a value leave what the Config
// says.
type Settings struct {
	Timeout    time.Duration // bounds the startup with all its tries (0 means no change)
	MaxRetries *int          // how often a failed start is retried (nil means no change)
	KeepFailed *bool         // see Config.KeepFailed (nil means no change)
	DropState  *bool         // see Config.DropState (nil means no change)
}

// Startup is StartupWith the settings of the Config.
func (i *Instance) Startup(ctx context.Context) error { return i.StartupWith(ctx, Settings{}) }

// StartupWith brings the instance to READY and returns when it is READY. The first call runs the Start hook,
// concurrent calls join it, and later calls do nothing (LC-8, LC-9, C-6: resources are acquired only once).
//
// The settings of the first call hold for the life of the instance; those of later calls are ignored (LC-24, LC-36).
// The timeout and the deadline of the first caller bound the startup with all of its tries. The startup
// continues if its caller is cancelled. Stop frees the resources of a failed try. If Stop fails too, there is no
// further try. After the last try every caller gets the error, and the instance is TERMINATED unless KeepFailed is
// set (LC-10 to LC-13).
//
// Modes: agent_timeout if time ran out; the mode of the hook's error, or else agent_logic; agent_state after
// Shutdown.
func (i *Instance) StartupWith(ctx context.Context, settings Settings) error {
	i.mu.Lock()
	if err := i.checkVersion(ctx, "Startup"); err != nil {
		i.mu.Unlock()
		return err
	}
	if i.startup == nil && i.record.State == Uninitialized {
		i.start = i.cfg.startConfig(settings)
		end := time.Now().Add(i.start.timeout)
		if callers, ok := ctx.Deadline(); ok && callers.Before(end) {
			end = callers
		}
		run, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
		i.startup = &operation{cancel: cancel, done: make(chan struct{})}
		i.record.transition(ctx, Initializing, "")
		go i.runStartup(run, i.startup, i.start)
	}
	startup, state := i.startup, i.record.State
	i.mu.Unlock()

	if startup == nil || state == ShuttingDown || state == Terminated {
		return newWrongStateError("Startup", state, Uninitialized)
	}
	select {
	case <-startup.done:
		return startup.err
	case <-ctx.Done():
		return failure.New(failure.AgentTimeout, "lifecycle.Startup", "the start did not end within the caller's deadline").Because(ctx.Err())
	}
}

func (i *Instance) runStartup(ctx context.Context, o *operation, start startConfig) {
	defer close(o.done)
	defer o.cancel()
	began := time.Now()
	err := i.hooks.runStart(ctx, start.retries)
	close(i.startHookDone)

	i.mu.Lock()
	i.record.metrics.StartupTime = max(time.Since(began), 1)
	if err == nil && i.record.State == Initializing {
		i.record.transition(ctx, Ready, "")
		i.mu.Unlock()
		return
	}
	i.mu.Unlock()
	if err == nil {
		err = errors.New("the instance was shut down while it started")
	}
	o.err = toStartupError(err)
	if !start.keepFailed {
		<-i.beginShutdown(context.WithoutCancel(ctx), leaveTimeout, "the start failed").done
	}
}

// toStartupError converts the error of a start to a failure. It keeps the failure mode of the hook's error.
func toStartupError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return failure.New(failure.AgentTimeout, "lifecycle.Startup",
			"the start did not end in time; raise lifecycle.timeout, or find out which resource hangs").Because(err)
	}
	if _, ok := errors.AsType[*failure.Error](err); ok {
		return err
	}
	return failure.New(failure.AgentLogic, "lifecycle.Startup", "the start failed; the worker's log has the cause").Because(err)
}
