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
	KillWorker      Fault = "worker kill -9"
	StopWorker      Fault = "worker SIGSTOP"
	KillMemory      Fault = "memory kill -9"
	KillRedis       Fault = "redis kill -9"
	LoseRedisReply  Fault = "reply lost memory-redis"
	LoseMemoryReply Fault = "reply lost worker-memory"

	KillOrchestrator Fault = "orchestrator kill -9" // hits every turn that some worker works on
)

// hitsOneWorker reports whether the fault hits one worker only.
func (f Fault) hitsOneWorker() bool { return f == KillWorker || f == StopWorker }

// RecoveryTimes measures the time that turns take from a fault to their next progress. It is safe for concurrent
// use.
type RecoveryTimes struct {
	mu           sync.Mutex
	frozen       bool                     // a worker is stopped by SIGSTOP
	watchedTurns map[string]*affectedTurn // by mark, the turns with watchers
	samples      map[Fault][]time.Duration
}

// affectedTurn is a running turn and the fault from which it must recover.
type affectedTurn struct {
	instance  string // that runs its step (empty between steps)
	fault     Fault  // (empty means none)
	victim    string
	faultTime time.Time
}

// NewRecoveryTimes returns a RecoveryTimes without samples.
func NewRecoveryTimes() *RecoveryTimes {
	return &RecoveryTimes{watchedTurns: map[string]*affectedTurn{}, samples: map[Fault][]time.Duration{}}
}

// RecordFault records that a fault happens now. instance is the worker that it hits (empty if it hits a store). A
// store fault affects all turns that run at a worker. A turn that still recovers from an earlier fault keeps that
// fault, unless it loses its worker. While a worker is frozen, only that fault is measured, because any turn may
// move to the frozen worker.
func (r *RecoveryTimes) RecordFault(fault Fault, instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = r.frozen || fault == StopWorker
	for _, turn := range r.watchedTurns {
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

// RecordThaw records that the frozen worker continues.
func (r *RecoveryTimes) RecordThaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = false
}

// maxMessageDelay is the time that a message may still take to arrive after its worker was stopped.
const maxMessageDelay = 200 * time.Millisecond

// recordEvent updates the affected turns with an event.
func (r *RecoveryTimes) recordEvent(mark string, e *troupev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	turn := r.watchedTurns[mark]
	if turn == nil {
		turn = &affectedTurn{}
		r.watchedTurns[mark] = turn
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
		delete(r.watchedTurns, mark)
	}
}

// hasRecovered reports whether an event shows that the turn has recovered. After a worker fault, another worker
// runs the step, or the same worker runs it again. After a store fault, a result was stored.
func (a *affectedTurn) hasRecovered(e *troupev1.Event) bool {
	switch {
	case e.GetTurnResult() != nil, e.GetStepFinished() != nil:
		return true
	case !a.fault.hitsOneWorker(), e.GetStep() == 0, e.GetTextRetracted() != nil, e.GetWarning() != nil:
		return false
	default:
		return e.GetInstanceId() != a.victim || a.fault == StopWorker && time.Since(a.faultTime) > maxMessageDelay
	}
}

// removeTurn removes a turn that no client watches any more.
func (r *RecoveryTimes) removeTurn(mark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchedTurns, mark)
}

// Samples returns the measured times, shortest first.
func (r *RecoveryTimes) Samples() map[Fault][]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[Fault][]time.Duration{}
	for fault := range maps.Keys(r.samples) {
		all[fault] = slices.Sorted(slices.Values(r.samples[fault]))
	}
	return all
}

// Quantile returns the given quantile of the sorted samples (0 if there are no samples).
func Quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
