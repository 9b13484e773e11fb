package lifecycle

import (
	"context"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// step is one that runs.
type step struct {
	trace  string // for the transition at its end
	cancel context.CancelCauseFunc
}

// Admit lets a step in: it is counted until end is called, and its context ends when a
// shutdown cancels it, with a cause of mode instance_draining. The check and the transition
// are one atomic step, so that of any number of callers at most Capacity get in (LC-29a).
// end may be called more than once; the first call counts. It takes what went wrong, or nil:
// after a failure of a mode that says that the process is broken the instance shuts down,
// after any other it goes on (LC-28). Fails with agent_state before READY, instance_full,
// instance_paused, also while the lease is EXPIRED, or instance_draining.
func (i *Instance) Admit(ctx context.Context) (stepCtx context.Context, end func(error), err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch s := i.status; {
	case s.State == Uninitialized || s.State == Initializing:
		return nil, nil, wrongState("ExecuteStep", s.State, Ready, Busy)
	case s.State == Paused || s.Pausing:
		return nil, nil, failure.New(failure.InstancePaused, "lifecycle.Admit", "the instance is paused; another may take the step")
	case s.State == ShuttingDown || s.State == Terminated:
		return nil, nil, failure.New(failure.InstanceDraining, "lifecycle.Admit", "the instance is shutting down; another may take the step")
	case s.Lease == LeaseExpired:
		return nil, nil, failure.New(failure.InstancePaused, "lifecycle.Admit", "the instance has lost its registration and registers anew; another may take the step")
	case s.InFlight >= s.Capacity:
		return nil, nil, failure.Newf(failure.InstanceFull, "lifecycle.Admit", "the instance runs %d steps, as many as it may; another may take the step", s.Capacity)
	}
	stepCtx, cancel := context.WithCancelCause(ctx)
	admitted := &step{tracedBy(ctx), cancel}
	i.steps[admitted] = struct{}{}
	i.status.InFlight++
	i.metrics.TotalRequests++
	if i.status.State == Ready {
		i.to(ctx, Busy, "")
	}
	var once sync.Once
	return stepCtx, func(err error) { once.Do(func() { i.leave(admitted, err) }) }, nil
}

// fatal reports whether a step's failure says that its process cannot go on.
func fatal(err error) bool { return failure.Is(err, failure.SystemCrash, failure.SystemOOM) }

// leave ends a step. Only BUSY changes: a step that ends during a shutdown must not revive
// the instance (LC-29b).
func (i *Instance) leave(s *step, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.cancel(nil)
	delete(i.steps, s)
	i.status.InFlight--
	if err != nil {
		i.metrics.FailedRequests++
	}
	ctx := Traced(context.Background(), s.trace)
	if fatal(err) { // before another step can get in
		i.beginShutdownLocked(ctx, i.cfg.Drain, "a step failed fatally")
	}
	i.status.Draining = i.status.Draining && i.status.InFlight > 0
	switch {
	case i.status.InFlight > 0 || i.status.State != Busy:
		i.notify()
	case i.pause != nil:
		i.settle(nil)
		i.to(ctx, Paused, i.status.Reason)
	default:
		i.to(ctx, Ready, "")
	}
}

// pause is what every Pause joins that comes while steps run.
type pause struct {
	waiting int // callers
	done    chan struct{}
	err     error // valid once done is closed; nil when PAUSED was reached
}

// settle ends the pause that waits, if one does. Callers hold the lock, and notify.
func (i *Instance) settle(err error) {
	if i.pause == nil {
		return
	}
	i.pause.err = err
	close(i.pause.done)
	i.pause, i.status.Pausing = nil, false
}

// Pause closes admission and returns once no step has run and the state was PAUSED.
// Concurrent calls join. When ctx ends first it fails with agent_timeout, and admission opens
// again unless another call still waits. Before READY, and when paused already, it is a
// no-op. A Resume that comes first makes it fail with agent_state, and so does Shutdown.
func (i *Instance) Pause(ctx context.Context, reason string) error {
	p, err := i.beginPause(ctx, reason)
	if p == nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	p.waiting--
	message := "running steps did not end within the caller's deadline; another Pause still waits for them"
	switch {
	case i.pause != p: // it was settled at the same moment
		return p.err
	case p.waiting == 0:
		message = "running steps did not end within the caller's deadline; admission is open again"
		i.settle(nil) // nobody waits for it
		i.status.Reason = ""
		i.notify()
	}
	return failure.New(failure.AgentTimeout, "lifecycle.Pause", message).Because(ctx.Err())
}

// beginPause does what can be done at once. What must be waited for is the pause that it
// returns.
func (i *Instance) beginPause(ctx context.Context, reason string) (*pause, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch i.status.State {
	case ShuttingDown, Terminated:
		return nil, wrongState("Pause", i.status.State, Ready, Busy)
	case Ready:
		i.to(ctx, Paused, reason)
		return nil, nil //nolint:nilnil // it is done
	case Busy:
		if i.pause == nil {
			i.pause = &pause{done: make(chan struct{})}
			i.status.Pausing, i.status.Reason = true, reason
			i.notify()
		}
		i.pause.waiting++
		return i.pause, nil
	default:
		return nil, nil //nolint:nilnil // there is nothing to do
	}
}

// Resume opens admission again: from PAUSED, and when a Pause still waits. Otherwise it is
// a no-op. After Shutdown it fails with agent_state.
func (i *Instance) Resume(ctx context.Context, reason string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.status.State == ShuttingDown || i.status.State == Terminated:
		return wrongState("Resume", i.status.State, Paused)
	case i.status.State == Paused:
		i.to(ctx, Ready, reason)
	case i.pause != nil:
		i.settle(failure.New(failure.AgentState, "lifecycle.Pause", "a Resume took the pause back"))
		i.status.Reason = reason
		i.notify()
	}
	return nil
}
