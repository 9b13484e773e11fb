package scenario

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/crowd"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/mesh"
	"github.com/troupe-dev/troupe/test/chaos/planted"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

// What clients see of three orchestrators that are killed, stopped and cut off again and
// again (guarantee F4).

var (
	replicaKills = flag.Int("replicas.kills", 10, "orchestrators to kill")
	replicaEvery = flag.Duration("replicas.every", 3*time.Second, "from one kill to the next")
)

const (
	replicas  = 3
	customers = 8
	back      = 2 * time.Second // a replica that was killed is away
)

// replicated is a mesh of three orchestrators under load.
type replicated struct {
	*mesh.Mesh
	ledger *ledger.Ledger
	crowd  *crowd.Crowd
	conn   *mesh.Conn
}

func startReplicated(t *testing.T) *replicated {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, planted.Build(folder, nil, planted.Memory, planted.Orchestrator, planted.Worker))
	programs := map[string]string{}
	for _, p := range []string{planted.Memory, planted.Orchestrator, planted.Worker} {
		programs[p] = filepath.Join(folder, filepath.Base(p))
	}
	l, err := ledger.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	m := mesh.Start(t, mesh.Config{Programs: programs, Workers: 3, Replicas: replicas, Ledger: l.URL(), Logs: *replicaLogs})
	conn := m.Orchestrator()
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &replicated{m, l, crowd.New(conn, history.NewClock(), "replicas", seed), conn}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { cancel(); r.crowd.Finish() })
	r.crowd.Go(ctx, customers)
	r.await(t, time.Minute, "the first turns", func() bool { return r.crowd.Tally().Turns >= customers })
	r.pause(8 * time.Second) // an orchestrator looks for orphans once it was heard for a while
	return r
}

var replicaLogs = flag.String("replicas.logs", "", "folder in which the programs' logs are kept; empty: none")

func (r *replicated) await(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, within, 10*time.Millisecond, what)
}

// pause lets the load run on.
func (r *replicated) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// finish has every client end what it is at, and checks all that was promised meanwhile.
func (r *replicated) finish(t *testing.T) {
	t.Helper()
	r.crowd.Finish()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.crowd.Stored(ctx))
	streams := r.crowd.Streams()
	for n := range streams {
		streams[n].First = false // which was sent first need not have come first: they go to different replicas
	}
	for _, v := range slices.Concat(r.crowd.Found(), r.crowd.Histories(), verify.Streams(streams),
		verify.Effects(r.ledger.Calls(), verify.AttemptsOf(streams), r.crowd.Committed(), r.crowd.Asked())) {
		t.Errorf("%s", v)
	}
	tally := r.crowd.Tally()
	t.Logf("%d turns, %d failed, %d streams", tally.Turns, tally.Failed, tally.Streams)
}

// TestReplicas_Kills is acceptance in small; with -replicas.kills=36 -replicas.every=5s it is
// three minutes long. Each kill hits the owner of a turn whose model is just at work.
func TestReplicas_Kills(t *testing.T) {
	r := startReplicated(t)
	var took []time.Duration
	for range *replicaKills {
		began := time.Now()
		took = append(took, r.strike(t, func(victim int) func() {
			r.KillReplica(victim)
			return func() { r.StartReplica(victim) }
		}))
		r.pause(max(0, *replicaEvery-time.Since(began)))
	}
	r.finish(t)
	slices.Sort(took)
	t.Logf("a trace had another owner after p50 %s, p99 %s", crowd.Quantile(took, 0.5), crowd.Quantile(took, 0.99))
	require.LessOrEqual(t, crowd.Quantile(took, 0.99), 10*time.Second)
}

// strike hits the owner of a turn whose model is just at work, and undoes it once the trace
// has another owner. It returns how long that took.
func (r *replicated) strike(t *testing.T, hit func(victim int) (undo func())) time.Duration {
	t.Helper()
	held, release := r.catch(t)
	victim := slices.IndexFunc([]int{0, 1, 2}, func(n int) bool { return r.Replica(n) == held.GetOwner() })
	require.GreaterOrEqual(t, victim, 0, held.GetOwner())
	undo := hit(victim)
	struck := time.Now()
	release()
	r.await(t, 20*time.Second, "another owner", func() bool {
		now, err := r.trace(t, held.GetTraceId())
		return err == nil && now.GetOwnerEpoch() > held.GetOwnerEpoch()
	})
	took := time.Since(struck)
	r.pause(max(0, back-took))
	undo()
	return took
}

// catch holds a turn in a call of its model, and returns its trace.
func (r *replicated) catch(t *testing.T) (held *troupev1.Trace, release func()) {
	t.Helper()
	hold := r.ledger.Hold(func(c ledger.Call) bool { return c.Kind == ledger.Model })
	var call ledger.Call
	select {
	case call = <-hold.Reached():
	case <-time.After(20 * time.Second):
		require.FailNow(t, "no model was called")
	}
	r.await(t, 20*time.Second, "its trace", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := troupev1.NewOrchestratorServiceClient(r.conn).ListTraces(ctx, &troupev1.ListTracesRequest{PageSize: 50})
		for _, trace := range resp.GetTraces() {
			if crowd.Mark(trace.GetSessionId(), trace.GetRequestId()) == call.Mark {
				held = trace
			}
		}
		return err == nil && held != nil
	})
	return held, hold.Release
}

func (r *replicated) trace(t *testing.T, id string) (*troupev1.Trace, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	resp, err := troupev1.NewOrchestratorServiceClient(r.conn).GetTrace(ctx, &troupev1.GetTraceRequest{TraceId: id})
	return resp.GetTrace(), err
}

// An orchestrator that stands still for longer than it vouches for its traces goes on where
// others have gone on already: it changes nothing, and tells nobody what is not so.
func TestReplicas_Zombies(t *testing.T) {
	r := startReplicated(t)
	for range replicas {
		r.strike(t, r.FreezeReplica)
		r.pause(2 * time.Second)
	}
	r.finish(t)
}

// An orchestrator that cannot reach Redis loses its traces to others, and is told so when it
// can again.
func TestReplicas_CutOffFromRedis(t *testing.T) {
	r := startReplicated(t)
	for range replicas {
		r.strike(t, r.CutOffReplica)
		r.pause(2 * time.Second)
	}
	r.finish(t)
}

// One that stops in order hands over what does not end in its time, and nobody waits for a
// lease, or until nobody vouches.
func TestReplicas_AStopInOrderHandsOver(t *testing.T) {
	r := startReplicated(t)
	for range replicas {
		took := r.strike(t, func(victim int) func() {
			r.StopReplica(victim)
			return func() { r.StartReplica(victim) }
		})
		t.Logf("handed over after %s", took)
		require.Less(t, took, 5*time.Second)
		r.pause(2 * time.Second)
	}
	r.finish(t)
}
