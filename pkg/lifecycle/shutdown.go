package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Shutdown ends the instance: admission closes, Leave runs, running steps may end within
// drain and are cancelled after it, Stop runs, and the state is TERMINATED. It returns
// when that is so, with what went wrong on the way joined into one error; the instance is
// TERMINATED all the same (LC-17…LC-19). Concurrent calls join; a shorter drain shortens
// the one that runs. When ctx ends first it returns ctx's error and the shutdown goes on.
func (i *Instance) Shutdown(ctx context.Context, drain time.Duration, reason string) error {
	a := i.beginShutdown(drain, reason)
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginShutdown starts the shutdown, or joins it and shortens its drain.
func (i *Instance) beginShutdown(drain time.Duration, reason string) *attempt {
	i.mu.Lock()
	defer i.mu.Unlock()
	deadline := time.Now().Add(drain)
	if i.shutdown != nil {
		if deadline.Before(i.deadline) {
			i.deadline = deadline
			select {
			case i.hurry <- struct{}{}:
			default: // one is waiting already, and will read the latest deadline
			}
		}
		return i.shutdown
	}
	i.shutdown, i.deadline = &attempt{done: make(chan struct{})}, deadline
	took := i.startup != nil // LC-22: nothing to release before the first Startup
	if took && i.status.State == Initializing {
		i.startup.cancel()
	}
	i.status.Pausing = false
	i.to(ShuttingDown, reason)
	go i.runShutdown(i.shutdown, took, reason)
	return i.shutdown
}

func (i *Instance) runShutdown(a *attempt, took bool, reason string) {
	defer close(a.done)
	began := time.Now()
	var errs []error
	if took {
		<-i.hooked // Leave and Stop must not overlap Start
		errs = append(errs, i.bounded("leave", i.cfg.Leave))
		errs = append(errs, i.drain())
		errs = append(errs, i.bounded("stop", i.cfg.Stop))
	}
	a.err = errors.Join(errs...)

	i.mu.Lock()
	defer i.mu.Unlock()
	i.metrics.ShutdownTime = max(time.Since(began), 1)
	i.to(Terminated, reason)
}

// hookTime is how long Leave and Stop may take each.
const hookTime = 5 * time.Second

func (i *Instance) bounded(name string, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), hookTime)
	defer cancel()
	return i.hook(ctx, name, run)
}

// errStopped is the cause of a step's context when the shutdown cancels it.
var errStopped = failure.New(failure.InstanceDraining, "lifecycle.Shutdown", "the worker stopped before the step ended; nothing of it was committed")

// drain waits for the running steps until the deadline, cancels the rest, and waits a
// little more for those.
func (i *Instance) drain() error {
	idle := func(s Status) bool { return s.InFlight == 0 }
	for {
		i.mu.Lock()
		deadline := i.deadline
		i.mu.Unlock()
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		stop := make(chan struct{})
		go func() {
			select {
			case <-i.hurry:
				cancel()
			case <-stop:
			}
		}()
		err := i.await(ctx, idle)
		close(stop)
		cancel()
		if err == nil {
			return nil
		}
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	i.mu.Lock()
	left := len(i.steps)
	for s := range i.steps {
		s.cancel(errStopped)
	}
	i.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), forced)
	defer cancel()
	if err := i.await(ctx, idle); err != nil {
		return fmt.Errorf("drain: of %d steps cancelled at the deadline, some did not end and were given up", left)
	}
	return fmt.Errorf("drain: %d steps were cancelled at the deadline", left)
}
