package lifecycle

import (
	"context"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// runningStep is a step that runs.
type runningStep struct {
	traceID string // for the transition at its end
	cancel  context.CancelCauseFunc
}

// Admit admits a step. The step counts against the capacity until end is called. Its context ends when a
// shutdown cancels it, with a cause of mode instance_draining. The check and the transition are one
// atomic step, so at most Capacity of any number of concurrent callers are admitted (LC-29a).
//
// The step must call end with its error, or nil. Only the first call counts. If the error says that the
// process is broken, the instance shuts down; after any other error it continues (LC-28: a failed step
// says nothing about the next one).
//
// Admit fails with agent_state before READY, with instance_full at capacity, and with instance_draining
// from a shutdown on. It fails with instance_paused while the instance is paused or its lease EXPIRED.
func (i *Instance) Admit(ctx context.Context) (stepCtx context.Context, end func(error), err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := checkAdmission(i.record.Status); err != nil {
		return nil, nil, err
	}
	stepCtx, cancel := context.WithCancelCause(ctx)
	admitted := &runningStep{traceID(ctx), cancel}
	i.steps[admitted] = struct{}{}
	i.record.InFlight++
	i.record.metrics.TotalRequests++
	if i.record.State == Ready {
		i.record.transition(ctx, Busy, "")
	}
	var once sync.Once
	return stepCtx, func(err error) { once.Do(func() { i.endStep(admitted, err) }) }, nil
}

// checkAdmission returns why an instance with this status admits no step, or nil.
func checkAdmission(s Status) error {
	const op = "lifecycle.Admit"
	switch {
	case s.State == Uninitialized || s.State == Initializing:
		return wrongState("ExecuteStep", s.State, Ready, Busy)
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

// endStep ends a step. Only BUSY changes, so that a step that ends during a shutdown does not revive the
// instance (LC-29b).
func (i *Instance) endStep(s *runningStep, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.cancel(nil)
	delete(i.steps, s)
	i.record.InFlight--
	if err != nil {
		i.record.metrics.FailedRequests++
	}
	ctx := ContextWithTrace(context.Background(), s.traceID)
	if isFatal(err) { // under the same lock, so that no other step is admitted in between
		i.beginShutdownLocked(ctx, i.cfg.Drain, "a step failed fatally")
	}
	i.record.Draining = i.record.Draining && i.record.InFlight > 0
	switch {
	case i.record.InFlight > 0 || i.record.State != Busy:
		i.record.notify()
	case i.pause != nil:
		i.endPause(nil)
		i.record.transition(ctx, Paused, i.record.Reason)
	default:
		i.record.transition(ctx, Ready, "")
	}
}

// isFatal reports whether the failure of a step says that its process cannot continue.
func isFatal(err error) bool { return failure.Is(err, failure.SystemCrash, failure.SystemOOM) }
