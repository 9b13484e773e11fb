package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Shutdown ends the instance: admission closes, Leave runs, running steps may end within
// drain and are cancelled after it, Stop runs, and the state is TERMINATED, within drain and
// a second whatever hooks do (I5). It returns when that is so, with what went wrong on the
// way joined into one error; every part runs, and the instance is TERMINATED, all the same
// (LC-17…LC-19). Concurrent calls join; a shorter drain shortens the one that runs. When
// ctx ends first it returns ctx's error and the shutdown goes on.
func (i *Instance) Shutdown(ctx context.Context, drain time.Duration, reason string) error {
	a := i.beginShutdown(ctx, drain, reason)
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginShutdown starts the shutdown, or joins it and shortens its deadline.
func (i *Instance) beginShutdown(ctx context.Context, drain time.Duration, reason string) *attempt {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.beginShutdownLocked(ctx, drain, reason)
}

func (i *Instance) beginShutdownLocked(ctx context.Context, drain time.Duration, reason string) *attempt {
	deadline := time.Now().Add(drain)
	if i.shutdown != nil {
		if deadline.Before(i.deadline) {
			i.deadline = deadline
			close(i.shrunk)
			i.shrunk = make(chan struct{})
		}
		return i.shutdown
	}
	i.shutdown, i.deadline = &attempt{done: make(chan struct{})}, deadline
	took := i.startup != nil // LC-22: nothing to release before the first Startup
	if took && i.status.State == Initializing {
		i.startup.cancel()
	}
	i.settle(wrongState("Pause", ShuttingDown, Ready, Busy))
	i.status.Draining = i.status.InFlight > 0
	i.to(ctx, ShuttingDown, reason)
	go i.runShutdown(context.WithoutCancel(ctx), i.shutdown, took, reason)
	return i.shutdown
}

// What may happen behind the deadline of a shutdown, all within a second: hooks are given
// up giveUp after their contexts.
const (
	leaveTime  = 100 * time.Millisecond
	cancelTime = 500 * time.Millisecond // for steps that were cancelled
	stopTime   = 700 * time.Millisecond
	hookTime   = 5 * time.Second // for Leave, so that steps have time to drain behind it
)

func (i *Instance) runShutdown(ctx context.Context, a *attempt, took bool, reason string) {
	defer close(a.done)
	began := time.Now()
	var errs []error
	if took {
		<-i.hooked // Leave and Stop must not overlap Start
		leave, cancelLeave := i.until(leaveTime)
		defer cancelLeave()
		leave, cancelHook := context.WithTimeout(leave, hookTime)
		defer cancelHook()
		errs = append(errs, i.bounded(leave, "leave", i.cfg.Leave))
		errs = append(errs, i.logged("drain", i.drain()))
		stop, cancelStop := i.until(stopTime)
		defer cancelStop()
		errs = append(errs, i.bounded(stop, "stop", i.cfg.Stop))
	}
	a.err = errors.Join(errs...)

	i.mu.Lock()
	defer i.mu.Unlock()
	i.metrics.ShutdownTime = max(time.Since(began), 1)
	i.status.Draining = false
	i.to(ctx, Terminated, reason)
}

// bounded runs a hook of the shutdown. What its error says may be told to whoever asked for
// the shutdown; its cause is for the log.
func (i *Instance) bounded(ctx context.Context, name string, run func(context.Context) error) error {
	err := i.logged(name, i.hook(ctx, name, run))
	if err == nil {
		return nil
	}
	why := "failed; the worker's log has the cause"
	switch told, ok := errors.AsType[*failure.Error](err); {
	case ok:
		why = "failed: " + told.Message
	case errors.Is(err, errPanic):
		why = "panicked; the worker's log has the cause"
	case errors.Is(err, errGivenUp):
		why = errGivenUp.Error()
	}
	return failure.Newf(failure.AgentLogic, "lifecycle.Shutdown", "the %s hook %s", name, why).Because(err)
}

// until returns a context whose deadline is a little behind that of the shutdown, which may
// come nearer meanwhile; then the context ends sooner.
func (i *Instance) until(behind time.Duration) (context.Context, context.CancelFunc) {
	i.mu.Lock()
	deadline := i.deadline.Add(behind)
	i.mu.Unlock()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		for ctx.Err() == nil {
			i.mu.Lock()
			timer, shrunk := time.NewTimer(time.Until(i.deadline)+behind), i.shrunk
			i.mu.Unlock()
			select {
			case <-timer.C:
				end(context.DeadlineExceeded)
			case <-shrunk:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}()
	return ctx, func() { end(nil); cancel() }
}

// errStopped is the cause of a step's context when the shutdown cancels it.
var errStopped = failure.New(failure.InstanceDraining, "lifecycle.Shutdown", "the worker stopped before the step ended; nothing of it was committed")

// drain waits for the running steps until the deadline, cancels the rest, and waits a
// little more for those.
func (i *Instance) drain() error {
	idle := func(s Status) bool { return s.InFlight == 0 }
	ctx, cancel := i.until(0)
	defer cancel()
	if i.await(ctx, idle) == nil {
		return nil
	}
	i.mu.Lock()
	left := len(i.steps)
	for s := range i.steps {
		s.cancel(errStopped)
	}
	i.status.Draining = false
	i.notify()
	i.mu.Unlock()
	ctx, cancelWait := i.until(cancelTime)
	defer cancelWait()
	if err := i.await(ctx, idle); err != nil {
		return failure.Newf(failure.AgentTimeout, "lifecycle.Shutdown", "of %d steps cancelled at the deadline, some did not end and were given up", left)
	}
	return failure.Newf(failure.AgentTimeout, "lifecycle.Shutdown", "%d steps were cancelled at the deadline", left)
}
