//go:build chaos

package chaos

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/contest"
	"github.com/troupe-dev/troupe/test/chaos/crowd"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

const (
	clients = 8 // of the mesh, each with a session
	games   = 4 // on the memory service beside them
)

// TestChaos runs the plan and checks every promise.
func TestChaos(t *testing.T) {
	t.Logf("seed %d", seed())
	r := start(t, mesh.Config{Programs: build(t, nil), Workers: workers, Logs: *logs})
	r.startClients(clients, games)
	began := time.Now()
	strikes, freezes := Plan(seed(), Sizes{
		WorkerKills: *workerKills, MemoryKills: *memoryKills, RedisKills: *redisKills, Stops: *stops, Cuts: *cuts,
	})
	alone := len(strikes) * 2 / 3 // the others come while workers are frozen
	for _, s := range strikes[:alone] {
		r.strike(s)
	}
	var lane sync.WaitGroup
	lane.Go(func() {
		for _, s := range freezes {
			r.stopWorker(s)
			r.pause(s.Pause)
		}
	})
	for _, s := range strikes[alone:] {
		r.strike(s)
	}
	lane.Wait()
	took := time.Since(began)
	r.finish()

	t.Logf("\n%s", r.table(took))
	for _, v := range r.violations() {
		t.Errorf("%s", v)
	}
	r.checkCoverage()
}

// checkCoverage fails a run in which too few faults took effect to prove anything.
func (r *run) checkCoverage() {
	r.t.Helper()
	want := map[crowd.Fault]int{
		crowd.KillWorker: *workerKills, crowd.KillMemory: *memoryKills, crowd.KillRedis: *redisKills, crowd.StopWorker: *stops,
		crowd.LoseToRedis: *cuts / 2, crowd.LoseToMemory: *cuts - *cuts/2,
	}
	for fault, n := range want {
		require.GreaterOrEqual(r.t, r.injected[fault], n, "%s fired", fault)
	}
	require.Positive(r.t, r.ToRedis.Cuts(), "replies between memory and Redis were lost")
	require.Positive(r.t, r.ToMemory.Cuts(), "replies between workers and memory were lost")

	seen := verify.CountFaults(r.crowd.Streams(), r.ledger.Calls())
	require.Positive(r.t, seen.Takeovers, "takeovers")
	require.Positive(r.t, seen.Resets, "part resets")
	require.Positive(r.t, seen.Replays, "replays of the journal")
	require.Positive(r.t, seen.Unknown, "tools in doubt")
	require.Positive(r.t, r.contest.ReplyCounts()[contest.Fenced]+r.CountLogLines("step failed", "fenced"), "fenced writes")
	for _, reply := range contest.All {
		require.Positive(r.t, r.contest.ReplyCounts()[reply], "replies %q of the memory service", reply)
	}
	tally := r.crowd.Tally()
	require.GreaterOrEqual(r.t, tally.Turns, 2*(*workerKills), "turns acknowledged")
	require.Positive(r.t, tally.Bursts, "bursts of one request")
	require.Positive(r.t, tally.Leaves, "clients that left and came back")
	for fault, samples := range r.crowd.Recovery.Samples() {
		if goal, ok := goals[fault]; ok {
			require.LessOrEqual(r.t, crowd.Quantile(samples, 0.99), goal, "recovery from %s at p99", fault)
		}
	}
	require.LessOrEqual(r.t, tally.Failed, tally.Turns/50, "turns that lost three workers")
}
