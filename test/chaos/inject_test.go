//go:build chaos

package chaos

import (
	"time"

	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
)

// Times of strikes.
const (
	aimTime         = 2 * time.Second // until a worker is in the call during which it is hit
	recoveryTimeout = 5 * time.Second // how long the mesh may take to recover before the next fault is injected anyway
)

// injectFault injects one fault. The goroutine of the test must call it.
func (r *run) injectFault(s PlannedFault) {
	r.t.Helper()
	turns := r.acknowledgedTurns()
	switch s.Fault {
	case simclients.KillWorker:
		victim, release := r.selectVictim(s.Call)
		r.recordFault(s.Fault, victim.ID)
		r.KillWorker(victim)
		release()
		r.StartWorker()
	case simclients.KillMemory:
		r.recordFault(s.Fault, "")
		r.KillMemory()
		r.StartMemory()
	case simclients.KillRedis:
		if r.stallDisk {
			r.blockDisk()
		}
		r.recordFault(s.Fault, "")
		r.Redis.Kill()
		r.Redis.Start()
	case simclients.LoseRedisReply:
		r.recordFault(s.Fault, "")
		r.RedisProxy.DropNextReply()
	case simclients.LoseMemoryReply:
		r.recordFault(s.Fault, "")
		r.MemoryProxy.DropNextReply()
	case simclients.StopWorker: // stopWorker does it, in a lane of its own
	}
	r.pause(s.Pause)
	if !s.Overlaps {
		r.poll(recoveryTimeout, func() bool { return r.acknowledgedTurns() > turns+1 })
	}
}

// acknowledgedTurns returns how many turns were acknowledged.
func (r *run) acknowledgedTurns() int {
	if r.clients == nil {
		return r.contention.Turns()
	}
	return r.clients.Counts().Turns
}

// recordFault records a fault at this moment, for the summary and the recovery times.
func (r *run) recordFault(fault simclients.Fault, instance string) {
	if r.clients != nil {
		r.clients.Recovery.RecordFault(fault, instance)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injected[fault]++
}

// selectVictim waits for a worker that makes the selected call, and holds the call until release is called. If no
// call is selected or none arrives in time, it returns any worker that is not frozen.
func (r *run) selectVictim(at CallSelector) (victim *mesh.Process, release func()) {
	hold := r.ledger.Hold(func(c ledger.Call) bool {
		_, runs := r.Worker(c.Worker)
		return at.Matches(c) && runs
	})
	if at != (CallSelector{}) {
		timer := time.NewTimer(aimTime)
		defer timer.Stop()
		select {
		case call := <-hold.Reached():
			if p, ok := r.Worker(call.Worker); ok {
				return p, hold.Release
			}
		case <-timer.C:
		}
	}
	hold.Release()
	for { // one is always there, or about to be started
		for _, p := range r.Workers() {
			if p.ID != r.frozenWorker.Load() {
				return p, func() {}
			}
		}
		r.pause(aimTime / 100)
	}
}

// stopWorker freezes a worker for a while. Any goroutine may call it. The thawed worker continues, but is too late
// if another worker has taken over its turn.
func (r *run) stopWorker(s PlannedFault) {
	for {
		victim, release := r.selectVictim(s.Call)
		r.frozenWorker.Store(victim.ID)
		thaw, err := victim.Freeze()
		release()
		if err != nil {
			continue // it was killed at this moment
		}
		r.recordFault(s.Fault, victim.ID)
		r.pause(s.FreezeTime)
		thaw()
		r.clients.Recovery.RecordThaw()
		r.frozenWorker.Store("")
		return
	}
}
