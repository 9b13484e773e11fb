package active

import (
	"context"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// ErrStopping rejects requests while the orchestrator stops.
var ErrStopping = failure.New(failure.SystemNetwork, "turn.Orchestrate", "this orchestrator is stopping; send the request again")

// Drain counts the turns and calls that run, and waits for them when the orchestrator stops. Safe
// for concurrent use.
type Drain struct {
	running  sync.WaitGroup
	handOver func()

	mu          sync.Mutex
	closed      bool
	closing     chan struct{} // closed with closed
	handingOver chan struct{} // closed when the time to end has run out
}

// NewDrain returns a Drain that is open.
func NewDrain() *Drain {
	d := &Drain{closing: make(chan struct{}), handingOver: make(chan struct{})}
	d.handOver = sync.OnceFunc(func() { close(d.handingOver) })
	return d
}

// Enter counts one more turn or call, unless the orchestrator stops. The caller must call Leave.
func (d *Drain) Enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.running.Add(1)
	return true
}

// Leave ends what Enter began.
func (d *Drain) Leave() { d.running.Done() }

// Go runs a turn. It is called between Enter and Leave.
func (d *Drain) Go(turn func()) { d.running.Go(turn) }

// Closing returns a channel that is closed when the orchestrator begins to stop. Requests stop waiting then.
func (d *Drain) Closing() <-chan struct{} { return d.closing }

// HandingOver returns a channel that is closed when the turns that still run must be handed over.
func (d *Drain) HandingOver() <-chan struct{} { return d.handingOver }

// Close makes Enter reject everything, and calls rejecting once. It then waits until nothing runs. When ctx
// ends before that, the turns that are left are handed over. It may be called again.
func (d *Drain) Close(ctx context.Context, rejecting func()) {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.closing)
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

// IsClosing reports whether the orchestrator stops.
func (d *Drain) IsClosing() bool {
	select {
	case <-d.closing:
		return true
	default:
		return false
	}
}
