package admit

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

// inDoubt remembers the turns that this orchestrator may have begun: its call was not answered, or the
// trace could not be opened. Nothing was dispatched for them. A repeated request asks for such a turn
// under the same trace, by which the memory service knows its holder; otherwise it would wait until
// the lease has run out. Safe for concurrent use.
type inDoubt struct {
	mu     sync.Mutex
	byTurn map[string]try
}

// try is the first attempt to begin a turn in doubt.
type try struct {
	trace  string
	target string         // of the turn, because its trace may not be stored
	labels request.Labels // of the turn that it continues, for the same reason
	until  time.Time      // by then its lease has run out, if there is one
}

func newInDoubt() *inDoubt { return &inDoubt{byTurn: map[string]try{}} }

// take returns the try of a turn and forgets it.
func (d *inDoubt) take(turnID string) (try, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.byTurn[turnID]
	delete(d.byTurn, turnID)
	return t, ok && time.Now().Before(t.until)
}

// peek returns what take would return.
func (d *inDoubt) peek(turnID string) (try, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.byTurn[turnID]
	return t, ok && time.Now().Before(t.until)
}

// note remembers a try whose error leaves open whether its turn began.
func (d *inDoubt) note(decided Admission, err error) {
	if err == nil || !failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.byTurn, func(_ string, t try) bool { return now.After(t.until) })
	d.byTurn[decided.Begin.TurnID] = try{decided.Begin.TraceID, decided.Target, decided.Labels, now.Add(lease.Duration)}
}
