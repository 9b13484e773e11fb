package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// These are the times that the parts of a shutdown may take after its deadline. Together with hookGrace they add
// up to less than a second.
const (
	leaveExtra  = 100 * time.Millisecond
	cancelExtra = 500 * time.Millisecond // for cancelled steps to end
	stopExtra   = 700 * time.Millisecond
)

// leaveTimeout bounds the Leave hook, so that enough time remains to drain the steps.
const leaveTimeout = 5 * time.Second

// errStopped is the cancellation cause of a step that a shutdown cancels.
var errStopped = failure.New(failure.InstanceDraining, "lifecycle.Shutdown",
	"the worker stopped before the step ended; nothing of it was committed")

// Shutdown ends the instance. It closes admission and runs Leave. Running steps may end within drain and are
// cancelled after it. Then Stop runs. The state becomes TERMINATED within drain and one second, even if hooks hang
// (I5).
//
// Shutdown returns when the state is TERMINATED. Each part runs even if an earlier one failed, and the returned
// error joins all of their errors (LC-17 to LC-19: a broken hook must not keep a process alive). Concurrent calls
// join the running shutdown, and a shorter drain shortens it. A call after its end does nothing and returns nil. If ctx
// ends first, Shutdown returns the error of ctx and the shutdown continues.
func (i *Instance) Shutdown(ctx context.Context, drain time.Duration, reason string) error {
	i.mu.Lock()
	err := i.checkVersion(ctx, "Shutdown")
	if err != nil || i.record.State == Terminated {
		i.mu.Unlock()
		return err
	}
	o := i.beginShutdownLocked(ctx, drain, reason)
	i.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginShutdown starts the shutdown, or joins the running one and shortens its deadline.
func (i *Instance) beginShutdown(ctx context.Context, drain time.Duration, reason string) *operation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.beginShutdownLocked(ctx, drain, reason)
}

// beginShutdownLocked does what beginShutdown does. The caller must hold the lock.
func (i *Instance) beginShutdownLocked(ctx context.Context, drain time.Duration, reason string) *operation {
	end := time.Now().Add(drain)
	if i.shutdown != nil {
		i.drainDeadline.shorten(end)
		return i.shutdown
	}
	i.shutdown, i.drainDeadline = &operation{done: make(chan struct{})}, newDeadline(end)
	started := i.startup != nil
	if started && i.record.State == Initializing {
		i.startup.cancel()
	}
	i.endPause(newWrongStateError("Pause", ShuttingDown, Ready, Busy))
	i.record.Draining = i.record.InFlight > 0
	i.record.transition(ctx, ShuttingDown, reason)
	go i.runShutdown(context.WithoutCancel(ctx), i.shutdown, started, reason)
	return i.shutdown
}

// runShutdown runs the parts of a shutdown and ends in TERMINATED. An instance that was never started has nothing
// to release (LC-22).
func (i *Instance) runShutdown(ctx context.Context, o *operation, started bool, reason string) {
	defer close(o.done)
	began := time.Now()
	if started {
		o.err = i.leaveDrainAndStop()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.record.metrics.ShutdownTime = max(time.Since(began), 1)
	i.record.Draining = false
	i.record.transition(ctx, Terminated, reason)
}

// leaveDrainAndStop runs the Leave hook, drains the steps and runs the Stop hook.
func (i *Instance) leaveDrainAndStop() error {
	<-i.startHookDone // Leave and Stop must not overlap Start
	leave, cancelLeave := i.drainDeadline.context(leaveExtra)
	defer cancelLeave()
	leave, cancelHook := context.WithTimeout(leave, leaveTimeout)
	defer cancelHook()
	leaveErr := i.hooks.runAtShutdown(leave, "leave", i.cfg.Leave)
	drainErr := i.hooks.logError("drain", i.drainSteps())
	stop, cancelStop := i.drainDeadline.context(stopExtra)
	defer cancelStop()
	return errors.Join(leaveErr, drainErr, i.hooks.runAtShutdown(stop, "stop", i.cfg.Stop))
}

// drainSteps waits for the running steps until the deadline. Then it cancels the remaining ones and waits a little
// longer for them.
func (i *Instance) drainSteps() error {
	idle := func(s Status) bool { return s.InFlight == 0 }
	ctx, cancel := i.drainDeadline.context(0)
	defer cancel()
	if i.awaitStatus(ctx, idle) == nil {
		return nil
	}
	i.mu.Lock()
	left := len(i.steps)
	for s := range i.steps {
		s.cancel(errStopped)
	}
	i.record.Draining = false
	i.record.notifyWatchers()
	i.mu.Unlock()
	ctx, cancelWait := i.drainDeadline.context(cancelExtra)
	defer cancelWait()
	if err := i.awaitStatus(ctx, idle); err != nil {
		return failure.Newf(failure.AgentTimeout, "lifecycle.Shutdown",
			"%d steps were cancelled at the deadline, and some of them did not end and were abandoned", left)
	}
	return failure.Newf(failure.AgentTimeout, "lifecycle.Shutdown", "%d steps were cancelled at the deadline", left)
}
