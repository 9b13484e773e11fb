package crowd

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

// ofOne reports whether the fault is of one worker.
func (f Fault) ofOne() bool { return f == KillWorker || f == StopWorker }

// Recovery measures how long turns take from a fault to their next progress. Safe for
// concurrent use.
type Recovery struct {
	mu      sync.Mutex
	frozen  bool                 // a worker stands still
	open    map[string]*affected // by mark: turns with watchers
	samples map[Fault][]time.Duration
}

// affected is a turn that runs, and the fault that it has to get over.
type affected struct {
	instance string // that works on it; empty between steps
	fault    Fault  // empty: none
	victim   string
	at       time.Time
}

// NewRecovery returns one without samples.
func NewRecovery() *Recovery {
	return &Recovery{open: map[string]*affected{}, samples: map[Fault][]time.Duration{}}
}

// Hit says that a fault happens now; instance is the worker that it hits, if it is one. A
// fault of a store hits the turns that some worker works on. A turn that has not got over
// another fault yet stays with that one, unless it loses its worker. While a worker stands
// still, only that is measured: any turn may meet it when it has lost its own, also one that
// lost it just before and was given to that worker.
func (r *Recovery) Hit(fault Fault, instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = r.frozen || fault == StopWorker
	for _, turn := range r.open {
		hit := turn.fault == "" && turn.instance != ""
		if fault.ofOne() {
			hit = turn.instance == instance
		}
		if r.frozen && fault != StopWorker && hit || fault == StopWorker && !hit && turn.fault == KillWorker {
			hit, turn.fault = false, ""
		}
		if hit {
			turn.fault, turn.victim, turn.at = fault, instance, time.Now()
		}
	}
}

// Thawed says that no worker stands still any more.
func (r *Recovery) Thawed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = false
}

// inFlight is how long something that a worker said before it was stopped may be under way.
const inFlight = 200 * time.Millisecond

// saw takes an event of a turn.
func (r *Recovery) saw(mark string, e *troupev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	turn := r.open[mark]
	if turn == nil {
		turn = &affected{}
		r.open[mark] = turn
	}
	if e.GetInstanceId() != "" {
		turn.instance = e.GetInstanceId()
	}
	if turn.fault != "" && turn.progress(e) {
		r.samples[turn.fault] = append(r.samples[turn.fault], time.Since(turn.at))
		turn.fault = ""
	}
	if e.GetStepFinished() != nil {
		turn.instance = ""
	}
	if e.GetTurnResult() != nil {
		delete(r.open, mark)
	}
}

// progress reports whether an event shows that a turn has got over its fault: of a worker,
// when another works on the turn, or the same after all; of a store, when something was
// stored again.
func (a *affected) progress(e *troupev1.Event) bool {
	switch {
	case e.GetTurnResult() != nil, e.GetStepFinished() != nil:
		return true
	case !a.fault.ofOne(), e.GetStep() == 0, e.GetTextRetracted() != nil, e.GetWarning() != nil:
		return false
	default:
		return e.GetInstanceId() != a.victim || a.fault == StopWorker && time.Since(a.at) > inFlight
	}
}

// left removes a turn without watchers.
func (r *Recovery) left(mark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, mark)
}

// Samples are the times so far, the shortest first.
func (r *Recovery) Samples() map[Fault][]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[Fault][]time.Duration{}
	for fault := range maps.Keys(r.samples) {
		all[fault] = slices.Sorted(slices.Values(r.samples[fault]))
	}
	return all
}

// Quantile is the least of the sorted samples that a share of them does not exceed; 0
// without samples.
func Quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
