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

// InDoubtTurns records the turns that this orchestrator may have begun. Either the call to begin the turn got no
// answer, or the trace could not be opened. No step was dispatched for them. A repeated request asks for such a
// turn under the same trace, because the trace identifies the holder of the lease. Otherwise the request would
// wait until the lease has expired. InDoubtTurns is safe for concurrent use.
type InDoubtTurns struct {
	mu     sync.Mutex
	byTurn map[string]BeginAttempt
}

// BeginAttempt is the first attempt to begin a turn whose begin is in doubt.
type BeginAttempt struct {
	Trace  string
	Target string         // target of the turn; kept here because its trace may not be stored
	Labels request.Labels // labels of the turn that it continues, for the same reason
	until  time.Time      // when its lease has run out at the latest, if there is one
}

// NewInDoubtTurns returns an empty set of turns.
func NewInDoubtTurns() *InDoubtTurns { return &InDoubtTurns{byTurn: map[string]BeginAttempt{}} }

// Take removes the attempt recorded for a turn and returns it.
func (d *InDoubtTurns) Take(turnID string) (BeginAttempt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.byTurn[turnID]
	delete(d.byTurn, turnID)
	return t, ok && time.Now().Before(t.until)
}

// Peek returns the attempt that Take would return, and keeps it.
func (d *InDoubtTurns) Peek(turnID string) (BeginAttempt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.byTurn[turnID]
	return t, ok && time.Now().Before(t.until)
}

// Record records an attempt if its error leaves open whether the turn was begun.
func (d *InDoubtTurns) Record(decided Admission, err error) {
	if err == nil || !failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.byTurn, func(_ string, t BeginAttempt) bool { return now.After(t.until) })
	d.byTurn[decided.Begin.TurnID] = BeginAttempt{decided.Begin.TraceID, decided.Target, decided.Labels, now.Add(lease.Duration)}
}
