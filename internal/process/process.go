// Package process runs the parts of a program. It starts them in order, stops them in reverse order, and gives
// each of them time to stop.
package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Part is a component of a program that runs until its context ends. It calls ready once it serves; only then does
// the next part start.
type Part struct {
	Name string
	// Grace is how long Run may take to return after its context ended. After that the part is abandoned: the
	// other parts are still stopped, and the error of process.Run names the part.
	Grace time.Duration
	Run   func(ctx context.Context, ready func()) error
}

// Run starts the parts in order, calls ready once all of them are ready, and blocks until ctx ends or a part
// returns. A part that returns early stops the others, with or without an error. Run stops the parts in reverse
// order. It returns nil if ctx ended and no part failed. Otherwise it joins the errors of all parts, without
// context.Canceled.
func Run(ctx context.Context, log *zap.Logger, ready func(), parts ...Part) error {
	exited := make(chan struct{}, len(parts))
	var started []*runningPart
	for _, p := range parts {
		r := launch(ctx, p, exited)
		started = append(started, r)
		if !r.awaitReady(ctx, exited) {
			break
		}
		log.Debug("part ready", zap.String("part", p.Name))
		if len(started) == len(parts) {
			ready()
		}
	}
	select {
	case <-exited:
	case <-ctx.Done():
	}

	var errs []error
	for _, r := range slices.Backward(started) {
		errs = append(errs, r.stop(log))
	}
	return errors.Join(errs...)
}

type runningPart struct {
	Part
	cancel context.CancelFunc
	ready  chan struct{}
	done   chan struct{}
	err    error // valid once done is closed
}

// launch starts a part under a context of its own, which only stop cancels. So ctx does not stop all parts at
// once, and Run can stop them in order.
func launch(ctx context.Context, p Part, exited chan<- struct{}) *runningPart {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningPart{Part: p, cancel: cancel, ready: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer func() { close(r.done); exited <- struct{}{} }()
		err := p.Run(ctx, sync.OnceFunc(func() { close(r.ready) }))
		if err != nil && !errors.Is(err, context.Canceled) {
			r.err = fmt.Errorf("%s: %w", p.Name, err)
		}
	}()
	return r
}

// awaitReady waits until the part is ready and returns true. It returns false if the part or an earlier one ends
// first, or if ctx ends.
func (r *runningPart) awaitReady(ctx context.Context, exited chan struct{}) bool {
	select {
	case <-r.ready:
		return true
	case <-exited:
		exited <- struct{}{} // Run receives from exited, too
		return false
	case <-ctx.Done():
		return false
	}
}

func (r *runningPart) stop(log *zap.Logger) error {
	r.cancel()
	timer := time.NewTimer(r.Grace)
	defer timer.Stop()
	select {
	case <-r.done:
		log.Debug("part stopped", zap.String("part", r.Name), zap.Error(r.err))
		return r.err
	case <-timer.C:
		return fmt.Errorf("%s: did not stop within %s", r.Name, r.Grace)
	}
}
