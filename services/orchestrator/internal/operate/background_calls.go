package operate

import (
	"context"
	"sync"
	"time"
)

// backgroundCalls runs calls that may outlive the request that started them. Safe for concurrent use.
type backgroundCalls struct {
	ctx    context.Context //nolint:containedctx // of the running calls, which outlive their callers
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func newBackgroundCalls() *backgroundCalls {
	ctx, cancel := context.WithCancel(context.Background())
	return &backgroundCalls{ctx: ctx, cancel: cancel}
}

// start runs a call in a goroutine for at most the time within. The call gets the values of ctx but not its
// cancellation. start returns false after close.
func (b *backgroundCalls) start(ctx context.Context, within time.Duration, call func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		defer context.AfterFunc(b.ctx, cancel)()
		call(ctx)
	})
	return true
}

// close cancels the running calls and waits until they return.
func (b *backgroundCalls) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.running.Wait()
}
