package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Use starts the instance, runs body, and shuts the instance down on every way out, also
// when the start failed, and after a panic of body (LC-31). It returns the error of the
// start, or that of body; what goes wrong in the shutdown is joined to it.
func (i *Instance) Use(ctx context.Context, body func(context.Context) error) (err error) {
	defer func() { err = errors.Join(err, i.Shutdown(context.WithoutCancel(ctx), i.cfg.Drain, "the use ended")) }()
	if err := i.Startup(ctx); err != nil {
		return err
	}
	return body(ctx)
}

// Cascade returns a Start and a Stop hook for an instance that manages others: Start takes
// new ones from manage and starts them in order, Stop ends them in reverse (LC-32). When one
// does not start, Stop ends those before it; the next try has others, for one that ended
// never comes back. Those managed drain for as long as their coordinator has, less the second
// that their end may take beyond.
func Cascade(manage func() []*Instance) (start, stop func(context.Context) error) {
	var mu sync.Mutex // a Start that was given up may still run beside Stop
	var managed []*Instance
	start = func(ctx context.Context) error {
		fresh := manage()
		mu.Lock()
		managed = fresh
		mu.Unlock()
		for _, i := range fresh {
			if err := ctx.Err(); err != nil {
				return err // Stop may have been here
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
			errs = append(errs, i.endWithin(ctx))
		}
		return errors.Join(errs...)
	}
	return start, stop
}

// endWithin is a shutdown whose drain is what ctx leaves; it is cut short when ctx ends.
func (i *Instance) endWithin(ctx context.Context) error {
	const reason = "its coordinator ended"
	drain := i.cfg.Drain
	if deadline, ok := ctx.Deadline(); ok {
		drain = max(0, time.Until(deadline)-time.Second)
	}
	whole := context.WithoutCancel(ctx)
	defer context.AfterFunc(ctx, func() { i.beginShutdown(whole, 0, reason) })()
	return i.Shutdown(whole, drain, reason)
}
