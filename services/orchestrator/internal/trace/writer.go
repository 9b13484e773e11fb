package trace

import (
	"context"
	"errors"
	"sync"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// writer is the state of the goroutine that stores the events of a log. The goroutine runs while events
// are pending. All fields but ownerEpoch are guarded by the lock of the log.
type writer struct {
	goroutine  sync.WaitGroup
	active     bool
	cancel     context.CancelFunc
	ownerEpoch int64         // 0 until the trace is claimed; only the goroutine uses it
	term       uint64        // of the replica, in which the store last took a write
	err        error         // why the remaining events will not be stored
	rejected   chan struct{} // closed when err is set
}

// fail notes that no more events will be stored.
func (w *writer) fail(err error) {
	w.err = err
	close(w.rejected)
}

var errAbandoned = errors.New("abandoned by its owner")

// startWriter starts the goroutine unless it runs or has failed. The caller holds the lock.
func (l *Log) startWriter(ctx context.Context) {
	w := &l.writer
	if w.active || w.err != nil {
		return
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.active = true
	w.goroutine.Go(func() { l.write(ctx) })
}

// write stores what is pending, and what is appended meanwhile, until nothing is left.
func (l *Log) write(ctx context.Context) {
	for {
		l.mu.Lock()
		batch, upto := l.pending()
		if len(batch) == 0 || l.writer.err != nil {
			l.writer.cancel()
			l.history.shown, l.writer.active = upto, false
			l.notify()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()

		term := l.traces.term()
		_, err := retry.Do(ctx, func(ctx context.Context) (_ struct{}, err error) {
			defer panics.Recover("trace.Append", &err)
			return struct{}{}, l.put(ctx, batch)
		})

		l.mu.Lock()
		if err != nil {
			l.writer.fail(err)
		} else {
			l.history.shown, l.writer.term = upto, term
		}
		l.notify()
		l.mu.Unlock()
	}
}

// pending returns the durable events that are not stored yet, and how many events can be shown once they
// are. After an error no more than now can be shown. The caller holds the lock.
func (l *Log) pending() (batch []*troupev1.Event, upto int) {
	if l.writer.err != nil {
		return nil, l.history.shown
	}
	return l.history.pending()
}

// put stores events. The first write claims the trace.
func (l *Log) put(ctx context.Context, batch []*troupev1.Event) error {
	result := batch[len(batch)-1].GetTurnResult()
	l.mu.Lock()
	turnEpoch := l.turnEpoch
	l.mu.Unlock()
	if l.writer.ownerEpoch == 0 {
		claim := l.claim
		claim.Events, claim.Terms.TurnEpoch = batch, turnEpoch
		epoch, _, err := l.traces.store.Claim(ctx, claim)
		if err != nil {
			return err
		}
		l.writer.ownerEpoch = epoch
		if result == nil {
			return nil
		}
	}
	return l.traces.store.Append(ctx, l.Ref(), l.writer.ownerEpoch, turnEpoch, batch, result)
}

// await returns when nothing is being written any more. When ctx ends, it cancels the write.
func (l *Log) await(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.writer.cancel != nil {
			l.writer.cancel()
		}
	})()
	l.writer.goroutine.Wait()
}
