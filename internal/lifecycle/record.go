package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Transition is one change of state. Transitions are atomic, numbered, and remembered for watchers (LC-6: a
// watcher that reconnects misses none).
type Transition struct {
	From, To State
	Version  uint64 // version after the transition: 1, 2, 3, …
	Time     time.Time
	Reason   string // reason given by the caller of the verb
	TraceID  string // trace of the call that caused it (empty for none)
	Caller   string // who made that call (empty if the process itself caused it)
	// Lasted is how long the instance was in From.
	Lasted time.Duration
}

// MaxHistory is the number of transitions that an instance remembers at least.
const MaxHistory = 1024

// statusRecord holds the status of an instance with its metrics, its history and its watchers. The lock of the
// instance guards it. It only records transitions; the instance decides which ones are allowed.
type statusRecord struct {
	Status
	metrics   Metrics
	busySince time.Time     // time of the last change to BUSY
	history   []Transition  // latest transitions, oldest first
	changed   chan struct{} // closed and replaced at each change of the status
}

func newStatusRecord(capacity int) statusRecord {
	return statusRecord{
		Status:  Status{State: Uninitialized, Capacity: capacity, Since: time.Now()},
		changed: make(chan struct{}),
	}
}

// transition changes the state and records the trace of ctx as the cause.
func (r *statusRecord) transition(ctx context.Context, to State, reason string) {
	now := time.Now()
	switch {
	case to == Busy:
		r.busySince = now
	case r.State == Busy:
		r.metrics.ActiveTime += now.Sub(r.busySince)
	}
	if len(r.history) == 2*MaxHistory { // keeps copying rare: only one in MaxHistory transitions copies
		r.history = slices.Clone(r.history[MaxHistory:])
	}
	r.history = append(r.history, Transition{
		From: r.State, To: to, Version: r.Version + 1, Time: now, Reason: reason, Lasted: now.Sub(r.Since),
		TraceID: causeFromContext(ctx).traceID, Caller: causeFromContext(ctx).caller,
	})
	r.State, r.Since, r.Reason = to, now, reason
	r.Version++
	r.metrics.StateTransitions++
	r.notifyWatchers()
}

// notifyWatchers wakes everyone who waits for a change of the status.
func (r *statusRecord) notifyWatchers() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// currentMetrics returns the metrics with the active time up to now.
func (r *statusRecord) currentMetrics() Metrics {
	m := r.metrics
	if r.State == Busy {
		m.ActiveTime += time.Since(r.busySince)
	}
	return m
}

// transitionsAfter returns the transitions after a version. It fails as Instance.Transitions does.
func (r *statusRecord) transitionsAfter(version uint64) ([]Transition, error) {
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
