package simclients

import (
	"maps"
	"slices"
	"sync"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Fault names a kind of fault.
type Fault string

// The kinds of faults.
const (
	KillWorker   Fault = "worker kill -9"
	StopWorker   Fault = "worker SIGSTOP"
	KillMemory   Fault = "memory kill -9"
	KillRedis    Fault = "redis kill -9"
	LoseToRedis  Fault = "reply lost memory-redis"
	LoseToMemory Fault = "reply lost worker-memory"

	KillOrchestrator Fault = "orchestrator kill -9" // hits every turn that some worker works on
)

// hitsOneWorker reports whether the fault hits one worker only.
func (f Fault) hitsOneWorker() bool { return f == KillWorker || f == StopWorker }

// Recovery measures how long turns take from a fault to their next progress. It is safe for concurrent
// use.
type Recovery struct {
	mu      sync.Mutex
	frozen  bool                     // a worker is stopped by SIGSTOP
	open    map[string]*affectedTurn // by mark, the turns with watchers
	samples map[Fault][]time.Duration
}

// affectedTurn is a turn that runs, and the fault that it must recover from.
type affectedTurn struct {
	instance  string // that runs its step (empty between steps)
	fault     Fault  // (empty means none)
	victim    string
	faultTime time.Time
}

// NewRecovery returns a Recovery without samples.
func NewRecovery() *Recovery {
	return &Recovery{open: map[string]*affectedTurn{}, samples: map[Fault][]time.Duration{}}
}

// RecordFault records that a fault happens now. The instance is the worker that it hits (empty if it hits a
// store). A fault of a store hits all turns that a worker runs. A turn that has not recovered from an earlier
// fault keeps that fault, unless it loses its worker. While a worker is frozen, only that fault is measured,
// because any turn may move to the frozen worker.
func (r *Recovery) RecordFault(fault Fault, instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = r.frozen || fault == StopWorker
	for _, turn := range r.open {
		hit := turn.fault == "" && turn.instance != ""
		if fault.hitsOneWorker() {
			hit = turn.instance == instance
		}
		if r.frozen && fault != StopWorker && hit || fault == StopWorker && !hit && turn.fault == KillWorker {
			hit, turn.fault = false, ""
		}
		if hit {
			turn.fault, turn.victim, turn.faultTime = fault, instance, time.Now()
		}
	}
}

// RecordThaw records that no worker is frozen any more.
func (r *Recovery) RecordThaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = false
}

// inFlight is how long a message that a worker sent before it was stopped may take to arrive.
const inFlight = 200 * time.Millisecond

// observe records an event of a turn.
func (r *Recovery) observe(mark string, e *troupev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	turn := r.open[mark]
	if turn == nil {
		turn = &affectedTurn{}
		r.open[mark] = turn
	}
	if e.GetInstanceId() != "" {
		turn.instance = e.GetInstanceId()
	}
	if turn.fault != "" && turn.hasRecovered(e) {
		r.samples[turn.fault] = append(r.samples[turn.fault], time.Since(turn.faultTime))
		turn.fault = ""
	}
	if e.GetStepFinished() != nil {
		turn.instance = ""
	}
	if e.GetTurnResult() != nil {
		delete(r.open, mark)
	}
}

// hasRecovered reports whether an event shows that a turn has recovered: from a fault of a worker when
// another worker runs its step, or the same one again; from a fault of a store when a result was stored.
func (a *affectedTurn) hasRecovered(e *troupev1.Event) bool {
	switch {
	case e.GetTurnResult() != nil, e.GetStepFinished() != nil:
		return true
	case !a.fault.hitsOneWorker(), e.GetStep() == 0, e.GetTextRetracted() != nil, e.GetWarning() != nil:
		return false
	default:
		return e.GetInstanceId() != a.victim || a.fault == StopWorker && time.Since(a.faultTime) > inFlight
	}
}

// forget removes a turn that has no watchers any more.
func (r *Recovery) forget(mark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, mark)
}

// Samples returns the times so far, the shortest first.
func (r *Recovery) Samples() map[Fault][]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[Fault][]time.Duration{}
	for fault := range maps.Keys(r.samples) {
		all[fault] = slices.Sorted(slices.Values(r.samples[fault]))
	}
	return all
}

// Quantile returns the least of the sorted samples that the given share of them does not exceed. It
// returns 0 if there are no samples.
func Quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
