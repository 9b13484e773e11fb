package scenario

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/simclients"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

// These tests show what clients see while three orchestrators are repeatedly killed, stopped and partitioned
// (guarantee F4).

var (
	replicaKills        = flag.Int("replicas.kills", 4, "orchestrators to kill")
	replicaKillInterval = flag.Duration("replicas.every", 5*time.Second, "from one kill to the next")
	replicaRound        = flag.Int("replicas.rounds", 1, "orchestrators to freeze, to cut off, and to stop in order")
)

const (
	replicaCount    = 3
	clientCount     = 8
	replicaDowntime = 2 * time.Second // how long a killed replica stays down
)

// replicatedMesh is a mesh of three orchestrators under load.
type replicatedMesh struct {
	*mesh.Mesh
	ledger  *ledger.Ledger
	clients *simclients.Clients
	conn    *mesh.ReplicasConn
}

func startReplicated(t *testing.T) *replicatedMesh {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, bugbuild.Build(folder, nil, bugbuild.Memory, bugbuild.Orchestrator, bugbuild.Worker))
	programs := map[string]string{}
	for _, p := range []string{bugbuild.Memory, bugbuild.Orchestrator, bugbuild.Worker} {
		programs[p] = filepath.Join(folder, filepath.Base(p))
	}
	l, err := ledger.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	m := mesh.Start(t, mesh.Config{Programs: programs, Workers: 3, Replicas: replicaCount, LedgerURL: l.URL(), LogFolder: *replicaLogs})
	conn := m.DialOrchestrators()
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &replicatedMesh{m, l, simclients.New(conn, history.NewClock(), "replicas", seed), conn}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { cancel(); r.clients.Finish() })
	r.clients.Start(ctx, clientCount)
	r.await(t, time.Minute, "the first turns", func() bool { return r.clients.Counts().Turns >= clientCount })
	r.waitUnderLoad(8 * time.Second) // an orchestrator searches for orphaned turns only some time after its start
	return r
}

var replicaLogs = flag.String("replicas.logs", "", "folder for the programs' logs (empty means that they are removed)")

func (r *replicatedMesh) await(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, within, 10*time.Millisecond, what)
}

// waitUnderLoad waits while the clients continue to send requests.
func (r *replicatedMesh) waitUnderLoad(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// finish stops the clients after their current requests and checks every promise for the whole run.
func (r *replicatedMesh) finish(t *testing.T) {
	t.Helper()
	r.clients.Finish()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.clients.CheckSessions(ctx))
	streams := r.clients.Streams()
	for n := range streams {
		streams[n].IsFirst = false // the requests go to different replicas, so the order of arrival is unknown
	}
	for _, v := range slices.Concat(r.clients.Violations(), r.clients.CheckHistories(), verify.CheckStreams(streams),
		verify.CheckEffects(r.ledger.Calls(), verify.AttemptsFromStreams(streams), r.clients.CommittedSteps(), r.clients.RequestedMarks())) {
		t.Errorf("%s", v)
	}
	counts := r.clients.Counts()
	t.Logf("%d turns, %d failed, %d streams", counts.Turns, counts.Failed, counts.Streams)
}

// With -replicas.kills=36 one replica is killed every 5 seconds for three minutes. Then some replicas are frozen
// for longer than their heartbeat is valid, and continue after a takeover. Some cannot reach Redis and lose their
// traces, which they notice when they reach it again. Others stop gracefully and hand over unfinished turns, so
// that no client waits until a lease or heartbeat expires.
func TestReplicas_SurviveKillsFreezesPartitionsAndStops(t *testing.T) {
	r := startReplicated(t)
	r.killOwners(t, *replicaKills)
	for range *replicaRound {
		for _, hit := range []func(int) func(){r.FreezeReplica, r.CutOffReplica} {
			r.injectFaultIntoOwner(t, hit)
			r.waitUnderLoad(time.Second)
		}
		took := r.injectFaultIntoOwner(t, func(victim int) func() {
			r.StopReplica(victim)
			return func() { r.StartReplica(victim) }
		})
		t.Logf("handed over after %s", took)
		require.Less(t, took, 5*time.Second)
		r.waitUnderLoad(time.Second)
	}
	r.finish(t)
}

// killOwners kills, at fixed intervals, the replica that owns a turn during a model call.
func (r *replicatedMesh) killOwners(t *testing.T, n int) {
	t.Helper()
	var owned sync.WaitGroup
	took := make([]time.Duration, n)
	for i := range n {
		next := time.NewTimer(*replicaKillInterval)
		held, release := r.holdModelCall(t)
		victim := r.ownerOf(t, held)
		r.KillReplica(victim)
		struck := time.Now()
		release()
		owned.Go(func() { took[i] = r.awaitNewOwner(t, held, struck) })
		r.waitUnderLoad(replicaDowntime)
		r.StartReplica(victim)
		<-next.C
	}
	owned.Wait()
	slices.Sort(took)
	t.Logf("a trace had another owner after p50 %s, p99 %s", simclients.Quantile(took, 0.5), simclients.Quantile(took, 0.99))
	require.NotContains(t, took, time.Duration(0), "a trace got no other owner")
	require.LessOrEqual(t, simclients.Quantile(took, 0.99), 10*time.Second)
}

// injectFaultIntoOwner injects a fault into the replica that owns a turn during a model call. It ends the fault
// some time after the trace has a new owner, and returns how long the takeover took.
func (r *replicatedMesh) injectFaultIntoOwner(t *testing.T, hit func(victim int) (undo func())) time.Duration {
	t.Helper()
	held, release := r.holdModelCall(t)
	undo := hit(r.ownerOf(t, held))
	struck := time.Now()
	release()
	took := r.awaitNewOwner(t, held, struck)
	require.NotZero(t, took, "the trace got no other owner")
	r.waitUnderLoad(replicaDowntime - took)
	undo()
	return took
}

// ownerOf returns the number of the replica that owns a trace.
func (r *replicatedMesh) ownerOf(t *testing.T, held *troupev1.Trace) int {
	t.Helper()
	n := slices.IndexFunc([]int{0, 1, 2}, func(n int) bool { return r.ReplicaName(n) == held.GetOwner() })
	require.GreaterOrEqual(t, n, 0, held.GetOwner())
	return n
}

// awaitNewOwner waits until a trace has a new owner. It returns the time since the fault (0 if there is no new
// owner in time).
func (r *replicatedMesh) awaitNewOwner(t *testing.T, held *troupev1.Trace, struck time.Time) time.Duration {
	for time.Since(struck) < 30*time.Second {
		if now, err := r.getTrace(t, held.GetTraceId()); err == nil && now.GetOwnerEpoch() > held.GetOwnerEpoch() {
			return time.Since(struck)
		}
		r.waitUnderLoad(10 * time.Millisecond)
	}
	return 0
}

// holdModelCall holds a model call of a turn and returns the turn's trace. It skips turns whose traces are not
// among the most recent.
func (r *replicatedMesh) holdModelCall(t *testing.T) (held *troupev1.Trace, release func()) {
	t.Helper()
	for range 100 {
		hold := r.ledger.Hold(func(c ledger.Call) bool { return c.Kind == ledger.Model })
		select {
		case call := <-hold.Reached():
			held = r.findRecentTrace(t, call.Mark)
		case <-time.After(20 * time.Second):
			require.FailNow(t, "no model was called")
		}
		if held != nil {
			return held, hold.Release
		}
		hold.Release()
	}
	require.FailNow(t, "no trace of a turn whose model is at work is among the latest")
	return nil, nil
}

// findRecentTrace returns the trace of a turn if it is among the most recent ones (nil otherwise).
func (r *replicatedMesh) findRecentTrace(t *testing.T, mark string) *troupev1.Trace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := troupev1.NewOrchestratorServiceClient(r.conn).ListTraces(ctx, &troupev1.ListTracesRequest{PageSize: 200})
	if err != nil {
		return nil
	}
	for _, trace := range resp.GetTraces() {
		if simclients.RequestMark(trace.GetSessionId(), trace.GetRequestId()) == mark {
			return trace
		}
	}
	return nil
}

func (r *replicatedMesh) getTrace(t *testing.T, id string) (*troupev1.Trace, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	resp, err := troupev1.NewOrchestratorServiceClient(r.conn).GetTrace(ctx, &troupev1.GetTraceRequest{TraceId: id})
	return resp.GetTrace(), err
}
