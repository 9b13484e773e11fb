package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// CoordinatorHooks returns the Start and Stop hooks of an instance that coordinates other instances (LC-32: they
// live only within its lifetime). Start creates the instances and starts them in order. Stop shuts them down in
// reverse order. If one fails to start, Stop ends the earlier ones and the next try creates new ones, because a
// TERMINATED instance never starts again. The instances drain one second less than their coordinator, because a
// shutdown may exceed its drain by a second.
func CoordinatorHooks(create func() []*Instance) (start, stop func(context.Context) error) {
	var mu sync.Mutex // an abandoned Start may still run concurrently with Stop
	var managed []*Instance
	start = func(ctx context.Context) error {
		created := create()
		mu.Lock()
		managed = created
		mu.Unlock()
		for _, i := range created {
			if err := ctx.Err(); err != nil {
				return err // Stop may have run already
			}
			if err := i.Startup(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	stop = func(ctx context.Context) error {
		mu.Lock()
		ending := managed
		managed = nil
		mu.Unlock()
		var errs []error
		for _, i := range slices.Backward(ending) {
			errs = append(errs, i.shutdownWithin(ctx))
		}
		return errors.Join(errs...)
	}
	return start, stop
}

// shutdownWithin shuts the instance down and drains it until shortly before the deadline of ctx. The drain ends
// early if ctx is cancelled.
func (i *Instance) shutdownWithin(ctx context.Context) error {
	const reason = "its coordinator ended"
	drain := i.cfg.DrainTimeout
	if end, ok := ctx.Deadline(); ok {
		drain = max(0, time.Until(end)-time.Second)
	}
	uncancelled := context.WithoutCancel(ctx)
	defer context.AfterFunc(ctx, func() { i.beginShutdown(uncancelled, 0, reason) })()
	return i.Shutdown(uncancelled, drain, reason)
}
