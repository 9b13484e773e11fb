package lifecycle

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Transition is one change of state. Each is atomic, numbered and kept for watchers (LC-6).
type Transition struct {
	From, To State
	Version  uint64 // of the status after it: 1, 2, 3, …
	Time     time.Time
	Reason   string // as the caller of the verb gave it
	TraceID  string // of the call that led to it; empty when there was none
}

// MaxHistory is how many transitions an instance remembers.
const MaxHistory = 1024

// remember keeps the latest transitions. Callers hold the lock.
func (i *Instance) remember(t Transition) {
	if len(i.history) == 2*MaxHistory { // so that a transition costs no copy but each thousandth
		i.history = append(i.history[:0:0], i.history[MaxHistory:]...)
	}
	i.history = append(i.history, t)
}

// Transitions returns those above the version after, in order and without a gap, with the
// status that they led to and a channel that is closed at the next change of it. Fails with
// user_invalid_input when after is still to come, and with resource_quota when what follows
// it is no longer remembered.
func (i *Instance) Transitions(after uint64) ([]Transition, Status, <-chan struct{}, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	version := i.status.Version
	if after > version {
		return nil, i.status, nil, failure.Newf(failure.UserInvalidInput, "lifecycle.Transitions",
			"after_version: the instance is at version %d, and %d was asked for", version, after)
	}
	fresh := int(version - after)
	if fresh > min(len(i.history), MaxHistory) {
		return nil, i.status, nil, failure.Newf(failure.ResourceQuota, "lifecycle.Transitions",
			"after_version: the %d transitions after %d are no longer known, only the latest %d; begin with the present state", fresh, after, MaxHistory)
	}
	return append([]Transition(nil), i.history[len(i.history)-fresh:]...), i.status, i.changed, nil
}

type traceKey struct{}

// Traced returns a context whose transitions name the trace.
func Traced(ctx context.Context, traceID string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceID)
}

func tracedBy(ctx context.Context) string {
	id, _ := ctx.Value(traceKey{}).(string)
	return id
}
