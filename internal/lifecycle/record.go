package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Transition is one change of state. Transitions are atomic, numbered, and remembered for watchers
// (LC-6: a watcher that reconnects misses none).
type Transition struct {
	From, To State
	Version  uint64 // of the status after it: 1, 2, 3, …
	Time     time.Time
	Reason   string // as the caller of the verb gave it
	TraceID  string // of the call that led to it (empty means none)
}

// MaxHistory is how many transitions an instance remembers.
const MaxHistory = 1024

// record is the status of an instance with its metrics, its history and its watchers. The lock of the
// instance guards it. It records transitions; the instance decides which ones are allowed.
type record struct {
	Status
	metrics   Metrics
	busySince time.Time     // when the state changed to BUSY last
	history   []Transition  // the latest, oldest first
	changed   chan struct{} // closed and replaced at each change of the status
}

func newRecord(capacity int) record {
	return record{
		Status:  Status{State: Uninitialized, Capacity: capacity, Since: time.Now()},
		changed: make(chan struct{}),
	}
}

// transition changes the state on behalf of the trace of ctx.
func (r *record) transition(ctx context.Context, to State, reason string) {
	now := time.Now()
	switch {
	case to == Busy:
		r.busySince = now
	case r.State == Busy:
		r.metrics.ActiveTime += now.Sub(r.busySince)
	}
	if len(r.history) == 2*MaxHistory { // so that only one in MaxHistory transitions copies the history
		r.history = slices.Clone(r.history[MaxHistory:])
	}
	r.history = append(r.history, Transition{
		From: r.State, To: to, Version: r.Version + 1, Time: now, Reason: reason, TraceID: traceID(ctx),
	})
	r.State, r.Since, r.Reason = to, now, reason
	r.Version++
	r.metrics.StateTransitions++
	r.notify()
}

// notify wakes the watchers.
func (r *record) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// currentMetrics returns the metrics with the active time up to now.
func (r *record) currentMetrics() Metrics {
	m := r.metrics
	if r.State == Busy {
		m.ActiveTime += time.Since(r.busySince)
	}
	return m
}

// transitionsAfter returns the transitions above a version. See Instance.Transitions for its errors.
func (r *record) transitionsAfter(version uint64) ([]Transition, error) {
	if version > r.Version {
		return nil, failure.Newf(failure.UserInvalidInput, "lifecycle.Transitions",
			"after_version: the instance is at version %d, and %d was asked for; use a version that it has reached", r.Version, version)
	}
	newer := int(r.Version - version)
	if newer > min(len(r.history), MaxHistory) {
		return nil, failure.Newf(failure.ResourceQuota, "lifecycle.Transitions",
			"after_version: only the latest %d transitions are remembered, and %d followed version %d; begin with the present state",
			MaxHistory, newer, version)
	}
	return slices.Clone(r.history[len(r.history)-newer:]), nil
}
