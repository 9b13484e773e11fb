//go:build chaos

package chaos

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/contention"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

const (
	clients    = 8 // clients of the mesh, each with its own sessions
	contenders = 4 // callers that compete at the memory service at the same time
)

// TestChaos runs a plan of faults and checks every promise of the mesh.
func TestChaos(t *testing.T) {
	t.Logf("seed %d", seed())
	r := startRun(t, mesh.Config{Programs: buildPrograms(t, nil), Workers: workers, LogFolder: *logsFolder})
	r.startClients(clients, contenders)
	began := time.Now()
	strikes, freezes := Plan(seed(), FaultCounts{
		WorkerKills: *workerKills, MemoryKills: *memoryKills, RedisKills: *redisKills, Stops: *stops, Cuts: *cuts,
	})
	alone := len(strikes) * 2 / 3 // the others come while workers are frozen
	for _, s := range strikes[:alone] {
		r.injectFault(s)
	}
	var lane sync.WaitGroup
	lane.Go(func() {
		for _, s := range freezes {
			r.stopWorker(s)
			r.pause(s.Pause)
		}
	})
	for _, s := range strikes[alone:] {
		r.injectFault(s)
	}
	lane.Wait()
	took := time.Since(began)
	r.finish()

	t.Logf("\n%s", r.summaryTable(took))
	for _, v := range r.violations() {
		t.Errorf("%s", v)
	}
	r.checkCoverage()
}

// checkCoverage fails a run that proves nothing because too few faults took effect.
func (r *run) checkCoverage() {
	r.t.Helper()
	want := map[simclients.Fault]int{
		simclients.KillWorker: *workerKills, simclients.KillMemory: *memoryKills, simclients.KillRedis: *redisKills, simclients.StopWorker: *stops,
		simclients.LoseRedisReply: *cuts / 2, simclients.LoseMemoryReply: *cuts - *cuts/2,
	}
	for fault, n := range want {
		require.GreaterOrEqual(r.t, r.injected[fault], n, "%s fired", fault)
	}
	require.Positive(r.t, r.RedisProxy.DroppedReplies(), "replies between memory and Redis were lost")
	require.Positive(r.t, r.MemoryProxy.DroppedReplies(), "replies between workers and memory were lost")

	seen := verify.CountFaults(r.clients.Streams(), r.ledger.Calls())
	require.Positive(r.t, seen.Takeovers, "takeovers")
	require.Positive(r.t, seen.Retractions, "part resets")
	require.Positive(r.t, seen.ReplayedResults, "replays of the journal")
	require.Positive(r.t, seen.InDoubt, "tools in doubt")
	require.Positive(r.t, r.contention.ReplyCounts()[contention.Fenced]+r.CountLogLines("step failed", "fenced"), "fenced writes")
	for _, reply := range contention.AllReplies {
		require.Positive(r.t, r.contention.ReplyCounts()[reply], "replies %q of the memory service", reply)
	}
	counts := r.clients.Counts()
	require.GreaterOrEqual(r.t, counts.Turns, 2*(*workerKills), "turns acknowledged")
	require.Positive(r.t, counts.Bursts, "bursts of one request")
	require.Positive(r.t, counts.Disconnects, "clients that left and came back")
	for fault, samples := range r.clients.Recovery.Samples() {
		if goal, ok := recoveryGoals[fault]; ok {
			require.LessOrEqual(r.t, simclients.Quantile(samples, 0.99), goal, "recovery from %s at p99", fault)
		}
	}
	require.LessOrEqual(r.t, counts.Failed, counts.Turns/50, "turns that lost three workers")
}
