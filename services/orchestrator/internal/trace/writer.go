package trace

import (
	"context"
	"errors"
	"sync"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// writer stores the events of a log. Its goroutine runs while events are pending. The lock of the log protects all
// fields that change, except ownerEpoch.
type writer struct {
	log        *Log
	goroutine  sync.WaitGroup
	isRunning  bool
	cancel     context.CancelFunc
	ownerEpoch int64         // 0 until the trace is claimed; only the goroutine uses it
	term       uint64        // term of the replica (see currentTerm) in which the store last accepted a write
	err        error         // why the remaining events will not be stored
	rejected   chan struct{} // closed when err is set
}

// fail records why no more events will be stored, and closes rejected.
func (w *writer) fail(err error) {
	w.err = err
	close(w.rejected)
}

var errAbandoned = errors.New("abandoned by its owner")

// start starts the goroutine, unless it is running or a write has failed. The caller holds the lock of the log.
func (w *writer) start(ctx context.Context) {
	if w.isRunning || w.err != nil {
		return
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.isRunning = true
	w.goroutine.Go(func() { w.run(ctx) })
}

// run stores the pending events, and those appended meanwhile, until none is left.
func (w *writer) run(ctx context.Context) {
	l := w.log
	for {
		l.mu.Lock()
		batch, upto := l.pendingEvents()
		if len(batch) == 0 || w.err != nil {
			w.cancel()
			l.history.visibleCount, w.isRunning = upto, false
			l.notify()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()

		term := l.traces.currentTerm()
		_, err := retry.Do(ctx, func(ctx context.Context) (_ struct{}, err error) {
			defer panics.Recover("trace.Append", &err)
			return struct{}{}, w.storeBatch(ctx, batch)
		})

		l.mu.Lock()
		if err != nil {
			w.fail(err)
		} else {
			l.history.visibleCount, w.term = upto, term
		}
		l.notify()
		l.mu.Unlock()
	}
}

// storeBatch stores events. The first call claims the trace.
func (w *writer) storeBatch(ctx context.Context, batch []*troupev1.Event) error {
	l := w.log
	result := batch[len(batch)-1].GetTurnResult()
	l.mu.Lock()
	turnEpoch := l.turnEpoch
	l.mu.Unlock()
	if w.ownerEpoch == 0 {
		claim := l.claim
		claim.Events, claim.Turn.TurnEpoch = batch, turnEpoch
		epoch, _, err := l.traces.store.Claim(ctx, claim)
		if err != nil {
			return err
		}
		w.ownerEpoch = epoch
		if result == nil {
			return nil
		}
	}
	return l.traces.store.Append(ctx, l.Ref(), w.ownerEpoch, turnEpoch, batch, result)
}

// awaitIdle waits until no write is in progress. When ctx ends, it cancels the write.
func (w *writer) awaitIdle(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		w.log.mu.Lock()
		defer w.log.mu.Unlock()
		if w.cancel != nil {
			w.cancel()
		}
	})()
	w.goroutine.Wait()
}
