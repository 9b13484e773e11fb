package turn

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// unsure are the turns of which this runner does not know whether it began them: its call
// was not answered, or the trace could not be opened. Nobody was given work in their name.
// When such a turn is asked for again it is asked for under the same trace, by which the
// memory service knows its holder; otherwise it would wait for the lease to run out. Safe
// for concurrent use.
type unsure struct {
	mu     sync.Mutex
	traces map[string]unsureTrace // by turn id
}

type unsureTrace struct {
	id     string
	target string    // what handles the turn, for the trace may not say it yet
	labels Labels    // of the turn that it goes on with, for the same reason
	until  time.Time // the lease has run out by then, if there is one
}

func newUnsure() *unsure { return &unsure{traces: map[string]unsureTrace{}} }

// take returns the trace under which a turn may have begun, once.
func (u *unsure) take(turnID string) (unsureTrace, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, ok := u.traces[turnID]
	delete(u.traces, turnID)
	return known, ok && time.Now().Before(known.until)
}

// look returns what take would.
func (u *unsure) look(turnID string) (unsureTrace, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, ok := u.traces[turnID]
	return known, ok && time.Now().Before(known.until)
}

// note keeps the trace of a turn when the error leaves open whether it began.
func (u *unsure) note(a admission, err error) {
	if err == nil || !failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(u.traces, func(_ string, t unsureTrace) bool { return now.After(t.until) })
	u.traces[a.begin.TurnID] = unsureTrace{a.begin.TraceID, a.target, a.labels, now.Add(lease)}
}
