package lifecycle

import (
	"context"
	"sync"
	"time"
)

// deadline is a time that can be moved earlier while contexts depend on it. It is safe for concurrent use.
type deadline struct {
	mu        sync.Mutex
	at        time.Time
	shortened chan struct{} // closed and replaced when the deadline is shortened
}

func newDeadline(at time.Time) *deadline {
	return &deadline{at: at, shortened: make(chan struct{})}
}

// shorten moves the deadline to an earlier time. A later time changes nothing.
func (d *deadline) shorten(to time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to.Before(d.at) {
		d.at = to
		close(d.shortened)
		d.shortened = make(chan struct{})
	}
}

// current returns the deadline, and a channel that is closed when the deadline is shortened.
func (d *deadline) current() (time.Time, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.shortened
}

// context returns a context that ends the given time after the deadline. It follows the deadline when that is
// shortened.
func (d *deadline) context(after time.Duration) (context.Context, context.CancelFunc) {
	at, _ := d.current()
	ctx, cancel := context.WithDeadline(context.Background(), at.Add(after))
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		for ctx.Err() == nil {
			at, shortened := d.current()
			timer := time.NewTimer(time.Until(at) + after)
			select {
			case <-timer.C:
				end(context.DeadlineExceeded)
			case <-shortened:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}()
	return ctx, func() { end(nil); cancel() }
}
