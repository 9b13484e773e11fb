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
	aimTime     = 2 * time.Second // until a worker is in the call during which it is hit
	recoverTime = 5 * time.Second // before the next strike comes anyway
)

// strike injects one fault, from the goroutine of the test.
func (r *run) strike(s Strike) {
	r.t.Helper()
	turns := r.acknowledgedTurns()
	switch s.Fault {
	case simclients.KillWorker:
		victim, release := r.selectVictim(s.Aim)
		r.recordFault(s.Fault, victim.ID)
		r.KillWorker(victim)
		release()
		r.StartWorker()
	case simclients.KillMemory:
		r.recordFault(s.Fault, "")
		r.KillMemory()
		r.StartMemory()
	case simclients.KillRedis:
		if r.lazyDisk {
			r.holdDisk()
		}
		r.recordFault(s.Fault, "")
		r.Redis.Kill()
		r.Redis.Start()
	case simclients.LoseToRedis:
		r.recordFault(s.Fault, "")
		r.ToRedis.Cut()
	case simclients.LoseToMemory:
		r.recordFault(s.Fault, "")
		r.ToMemory.Cut()
	case simclients.StopWorker: // stopWorker does it, in a lane of its own
	}
	r.pause(s.Pause)
	if !s.Overlaps {
		r.poll(recoverTime, func() bool { return r.acknowledgedTurns() > turns+1 })
	}
}

// acknowledgedTurns returns how many turns were acknowledged.
func (r *run) acknowledgedTurns() int {
	if r.clients == nil {
		return r.contention.Turns()
	}
	return r.clients.Counts().Turns
}

// recordFault records a fault.
func (r *run) recordFault(fault simclients.Fault, instance string) {
	if r.clients != nil {
		r.clients.Recovery.RecordFault(fault, instance)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injected[fault]++
}

// selectVictim finds a worker that is in the middle of the given call, and holds the call until release. If there is
// none in time, or no call is given, it returns any running worker.
func (r *run) selectVictim(at Aim) (victim *mesh.Process, release func()) {
	hold := r.ledger.Hold(func(c ledger.Call) bool {
		_, runs := r.Worker(c.Worker)
		return at.Hits(c) && runs
	})
	if at != (Aim{}) {
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
			if p.ID != r.frozen.Load() {
				return p, func() {}
			}
		}
		r.pause(aimTime / 100)
	}
}

// stopWorker freezes a worker for a while; it may be called from any goroutine. When it is thawed it continues,
// too late if another worker has its turn by then.
func (r *run) stopWorker(s Strike) {
	for {
		victim, release := r.selectVictim(s.Aim)
		r.frozen.Store(victim.ID)
		thaw, err := victim.Freeze()
		release()
		if err != nil {
			continue // it was killed at this moment
		}
		r.recordFault(s.Fault, victim.ID)
		r.pause(s.Frozen)
		thaw()
		r.clients.Recovery.RecordThaw()
		r.frozen.Store("")
		return
	}
}
