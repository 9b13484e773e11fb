package lifecycle

import (
	"context"
	"errors"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// runningStep is an admitted step that has not ended.
type runningStep struct {
	cause  cause // recorded in the transition when the step ends
	cancel context.CancelCauseFunc
}

// Admit admits a step and returns its context and the function that ends it. The step counts against the capacity
// until end is called. A shutdown may cancel the context with a cause of mode instance_draining. Admit checks and
// changes the state under one lock, so concurrent callers cannot exceed the capacity (LC-29a).
//
// The caller must call end with the error of the step, or nil. Only the first call has an effect. If the error
// shows that the process is broken, the instance shuts down. After any other error it continues (LC-28: a failed
// step says nothing about the next one).
//
// Admit fails with agent_state before READY, with instance_full at capacity, and with instance_draining once a
// shutdown has begun. It fails with instance_paused while the instance is paused or its lease is EXPIRED.
func (i *Instance) Admit(ctx context.Context) (stepCtx context.Context, end func(error), err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := checkAdmission(i.record.Status); err != nil {
		return nil, nil, err
	}
	stepCtx, cancel := context.WithCancelCause(ctx)
	admitted := &runningStep{causeFromContext(ctx), cancel}
	i.steps[admitted] = struct{}{}
	i.record.InFlight++
	i.record.metrics.TotalRequests++
	if i.record.State == Ready {
		i.record.transition(ctx, Busy, "")
	}
	var once sync.Once
	return stepCtx, func(err error) { once.Do(func() { i.endStep(admitted, err) }) }, nil
}

// checkAdmission returns an error unless an instance with this status admits steps.
func checkAdmission(s Status) error {
	const op = "lifecycle.Admit"
	switch {
	case s.State == Uninitialized || s.State == Initializing:
		return newWrongStateError("ExecuteStep", s.State, Ready, Busy)
	case s.State == Paused || s.Pausing:
		return failure.New(failure.InstancePaused, op, "the instance is paused; another may take the step")
	case s.State == ShuttingDown || s.State == Terminated:
		return failure.New(failure.InstanceDraining, op, "the instance is shutting down; another may take the step")
	case s.Lease == LeaseExpired:
		return failure.New(failure.InstancePaused, op,
			"the instance has lost its registration and is about to register again; another may take the step")
	case s.InFlight >= s.Capacity:
		return failure.Newf(failure.InstanceFull, op, "the instance runs %d steps, which is its capacity; another may take the step", s.Capacity)
	}
	return nil
}

// endStep ends a step. It changes the state only from BUSY, so that a step that ends during a shutdown does not
// revive the instance (LC-29b).
func (i *Instance) endStep(s *runningStep, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.cancel(nil)
	delete(i.steps, s)
	i.record.InFlight--
	if err != nil {
		i.record.metrics.FailedRequests++
	}
	ctx := ContextWithCause(context.Background(), s.cause.traceID, s.cause.caller)
	if isFatal(err) { // under the same lock, so that no other step is admitted in between
		i.beginShutdownLocked(ctx, i.cfg.DrainTimeout, "a step failed fatally")
	}
	i.record.Draining = i.record.Draining && i.record.InFlight > 0
	switch {
	case i.record.InFlight > 0 || i.record.State != Busy:
		i.record.notifyWatchers()
	case i.pause != nil:
		i.endPause(nil)
		i.record.transition(ctx, Paused, i.record.Reason)
	default:
		i.record.transition(ctx, Ready, "")
	}
}

// isFatal reports whether the error of a step means that the process cannot continue: it is broken, its agent broke the
// contract of the mesh, or the agent's author says so (LC-39, C-2).
func isFatal(err error) bool {
	e, ok := errors.AsType[*failure.Error](err)
	return ok && (failure.Is(e, failure.SystemCrash, failure.SystemOOM, failure.AgentContract) || e.IsFatal())
}
