package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Use starts the instance, runs body, and shuts the instance down on every way out, also
// after a panic of body (LC-31). It returns the error of the start, or that of body; what
// goes wrong in the shutdown is joined to it.
func (i *Instance) Use(ctx context.Context, body func(context.Context) error) (err error) {
	if err := i.Startup(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.Shutdown(context.WithoutCancel(ctx), i.cfg.Drain, "the use ended")) }()
	return body(ctx)
}

// Cascade returns a Start and a Stop hook for an instance that manages others: it starts
// them in order, and ends them in reverse (LC-32). When one does not start, those before it
// are ended.
func Cascade(managed ...*Instance) (start, stop func(context.Context) error) {
	start = func(ctx context.Context) error {
		for _, i := range managed {
			if err := i.Startup(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	stop = func(ctx context.Context) error {
		var errs []error
		for _, i := range slices.Backward(managed) {
			drain := i.cfg.Drain
			if deadline, ok := ctx.Deadline(); ok {
				drain = min(drain, time.Until(deadline))
			}
			errs = append(errs, i.Shutdown(ctx, drain, "its coordinator ended"))
		}
		return errors.Join(errs...)
	}
	return start, stop
}
