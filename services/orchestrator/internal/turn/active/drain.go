package active

import (
	"context"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// ErrStopping is the error for requests that arrive while the orchestrator is stopping.
var ErrStopping = failure.New(failure.SystemNetwork, "turn.Orchestrate", "this orchestrator is stopping; send the request again")

// Drain counts the running turns and calls, and waits for them when the orchestrator stops. It is safe for
// concurrent use.
type Drain struct {
	running  sync.WaitGroup
	handOver func()

	mu              sync.Mutex
	isClosing       bool
	closeStarted    chan struct{} // closed when isClosing is set
	handoverStarted chan struct{} // closed when the ctx of Close has ended
}

// NewDrain returns a Drain that admits turns and calls.
func NewDrain() *Drain {
	d := &Drain{closeStarted: make(chan struct{}), handoverStarted: make(chan struct{})}
	d.handOver = sync.OnceFunc(func() { close(d.handoverStarted) })
	return d
}

// Enter counts one more running turn or call and returns true. It returns false while the orchestrator is
// stopping. After true, the caller must call Leave.
func (d *Drain) Enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosing {
		return false
	}
	d.running.Add(1)
	return true
}

// Leave ends a turn or call that Enter counted.
func (d *Drain) Leave() { d.running.Done() }

// Go runs a turn in a new goroutine and counts it. Call it between Enter and Leave.
func (d *Drain) Go(turn func()) { d.running.Go(turn) }

// CloseStarted returns a channel that is closed when the orchestrator begins to stop. Waiting requests then give
// up.
func (d *Drain) CloseStarted() <-chan struct{} { return d.closeStarted }

// HandoverStarted returns a channel that is closed when the turns that still run must be handed over.
func (d *Drain) HandoverStarted() <-chan struct{} { return d.handoverStarted }

// Close makes Enter return false from now on, and calls rejecting once. It then waits until no turn or call runs.
// If ctx ends first, the remaining turns are handed over. Close may be called again.
func (d *Drain) Close(ctx context.Context, rejecting func()) {
	d.mu.Lock()
	if !d.isClosing {
		d.isClosing = true
		close(d.closeStarted)
		rejecting()
	}
	d.mu.Unlock()
	idle := make(chan struct{})
	go func() { defer close(idle); d.running.Wait() }()
	select {
	case <-idle:
	case <-ctx.Done():
		d.handOver()
		<-idle
	}
}

// IsClosing reports whether Close has been called.
func (d *Drain) IsClosing() bool {
	select {
	case <-d.closeStarted:
		return true
	default:
		return false
	}
}
