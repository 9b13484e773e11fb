// Package chaos is the fault suite. It runs a mesh of real processes, and clients that retry each request
// until it has a result. It injects the faults of a seeded plan, and then checks every promise of the mesh.
// docs/chaos.md describes how it works and how to run it. The suite has the build tag chaos; the tests of its
// checks always run.
package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
)

// FaultCounts says how many faults of each kind a plan has.
type FaultCounts struct {
	WorkerKills, MemoryKills, RedisKills, Stops, Cuts int
}

// PlannedFault is one fault of a plan, and when and how to inject it.
type PlannedFault struct {
	Fault simclients.Fault
	// Call selects the call during which a worker is hit (the zero value means any moment).
	Call CallSelector
	// Pause is the time to wait before the next fault.
	Pause time.Duration
	// FreezeTime is how long a stopped worker stays stopped.
	FreezeTime time.Duration
	// Overlaps means that the next fault does not wait until the mesh has recovered from this one.
	Overlaps bool
}

// CallSelector selects a call of a worker by its kind and number.
type CallSelector struct {
	Kind   ledger.Kind
	Number int // number of a model call in its step (0 selects any)
}

// Matches reports whether the selector selects the call.
func (s CallSelector) Matches(c ledger.Call) bool {
	return c.Kind == s.Kind && (s.Number == 0 || c.Number == s.Number)
}

// targetedCalls lists the calls during which a worker is hit: one of each effect class, and the final answer.
var targetedCalls = []CallSelector{
	{ledger.Read, 0}, {ledger.Idempotent, 0}, {ledger.AtMostOnce, 0}, {ledger.Model, 4}, {ledger.Model, 2},
}

// Times of a plan.
const (
	minPause          = 50 * time.Millisecond
	maxPause          = 400 * time.Millisecond
	minFreezeTime     = time.Second
	maxFreezeTime     = 10 * time.Second
	replacementTime   = 8 * time.Second // a worker is unresponsive for this long before another one gets its steps, with some margin
	strikesPerOverlap = 4               // one strike in this many overlaps with the next
)

// Plan returns the faults of a run in two sequences that run concurrently, because freezing a worker takes long.
// The plan depends only on the seed.
func Plan(seed uint64, s FaultCounts) (main, stops []PlannedFault) {
	rng := rand.New(rand.NewPCG(seed, 0))
	add := func(fault simclients.Fault, n int) {
		for i := range n {
			strike := PlannedFault{
				Fault:    fault,
				Pause:    minPause + time.Duration(rng.Int64N(int64(maxPause-minPause))),
				Overlaps: rng.IntN(strikesPerOverlap) == 0,
			}
			if fault == simclients.KillWorker && i%3 != 0 || fault == simclients.StopWorker {
				strike.Call = targetedCalls[rng.IntN(len(targetedCalls))]
			}
			if fault == simclients.StopWorker {
				least := minFreezeTime
				if i%2 == 0 {
					least = replacementTime
				}
				strike.FreezeTime = least + time.Duration(rng.Int64N(int64(maxFreezeTime-least)))
				stops = append(stops, strike)
				continue
			}
			main = append(main, strike)
		}
	}
	add(simclients.KillWorker, s.WorkerKills)
	add(simclients.KillMemory, s.MemoryKills)
	add(simclients.KillRedis, s.RedisKills)
	add(simclients.LoseRedisReply, s.Cuts/2)
	add(simclients.LoseMemoryReply, s.Cuts-s.Cuts/2)
	add(simclients.StopWorker, s.Stops)
	rng.Shuffle(len(main), func(i, j int) { main[i], main[j] = main[j], main[i] })
	return main, stops
}
