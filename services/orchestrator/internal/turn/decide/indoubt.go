package decide

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// InDoubt records the turns that this orchestrator may have begun, because its call got no answer or the trace
// could not be opened. No step was dispatched for them. A repeated request asks for such a turn under the same
// trace, which identifies the holder of the lease. Otherwise it would wait until the lease has expired. Safe
// for concurrent use.
type InDoubt struct {
	mu     sync.Mutex
	byTurn map[string]Try
}

// Try is the first attempt to begin a turn in doubt.
type Try struct {
	Trace  string
	Target string         // of the turn, because its trace may not be stored
	Labels request.Labels // of the turn that it continues, for the same reason
	until  time.Time      // by then its lease has run out, if there is one
}

// NewInDoubt returns an InDoubt without turns.
func NewInDoubt() *InDoubt { return &InDoubt{byTurn: map[string]Try{}} }

// Take returns the try of a turn and forgets it.
func (d *InDoubt) Take(turnID string) (Try, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.byTurn[turnID]
	delete(d.byTurn, turnID)
	return t, ok && time.Now().Before(t.until)
}

// Peek returns what Take would return.
func (d *InDoubt) Peek(turnID string) (Try, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.byTurn[turnID]
	return t, ok && time.Now().Before(t.until)
}

// Note records a try whose error leaves open whether its turn began.
func (d *InDoubt) Note(decided Admission, err error) {
	if err == nil || !failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.byTurn, func(_ string, t Try) bool { return now.After(t.until) })
	d.byTurn[decided.Begin.TurnID] = Try{decided.Begin.TraceID, decided.Target, decided.Labels, now.Add(lease.Duration)}
}
