package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Cascade returns a Start and a Stop hook for an instance that coordinates others (LC-32: they live only
// within its lifetime). Start gets new instances from create and starts them in order. Stop shuts them
// down in reverse. When one does not start, Stop ends those before it, and the next try creates others,
// because a TERMINATED instance never starts again. The instances drain for as long as their coordinator
// has, less one second, because a shutdown may exceed its drain by a second.
func Cascade(create func() []*Instance) (start, stop func(context.Context) error) {
	var mu sync.Mutex // a Start that was abandoned may still run when Stop does
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

// shutdownWithin shuts the instance down with the time that ctx leaves for the drain. The drain ends
// early when ctx does.
func (i *Instance) shutdownWithin(ctx context.Context) error {
	const reason = "its coordinator ended"
	drain := i.cfg.Drain
	if end, ok := ctx.Deadline(); ok {
		drain = max(0, time.Until(end)-time.Second)
	}
	uncancelled := context.WithoutCancel(ctx)
	defer context.AfterFunc(ctx, func() { i.beginShutdown(uncancelled, 0, reason) })()
	return i.Shutdown(uncancelled, drain, reason)
}
