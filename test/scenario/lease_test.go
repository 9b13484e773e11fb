package scenario

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// These tests cover failures of a worker's process, of its lease, and of etcd (guarantees F9, F11).

const (
	leaseTime     = 15 * time.Second
	maxLeaseDelay = 3 * time.Second // how late etcd may expire a lease
)

func TestLease_Binaries(t *testing.T) {
	t.Parallel()
	m := rig.StartBinaries(t, rig.Config{RouteWait: 5 * time.Second})
	second := rig.SecondWorker("research")
	m.Start(second)
	m.Await("two instances", func() bool { return m.IsReady(second) && len(readyInstances(t, m)) == 2 })
	for _, s := range []struct {
		name string
		run  func(*testing.T, *rig.Mesh)
	}{
		{"ARevokedLeaseIsMadeAnewUnderLoad", revokedLeaseIsReplaced},
		{"EtcdRestartFailsNoTurn", etcdRestartFailsNoTurn},
		{"EtcdOutageBeyondLeasesFailsNoTurn", etcdOutageBeyondLeasesFailsNoTurn},
		{"KilledWorkerFailsNoTurn", killedWorkerFailsNoTurn},
		{"FrozenWorkerRegistersAgain", frozenWorkerRegistersAgain},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, m) }) {
			return
		}
	}
}

// readyInstances returns the instances of the agent research that accept steps.
func readyInstances(t *testing.T, m *rig.Mesh) (all []*troupev1.Instance) {
	t.Helper()
	for _, in := range listInstances(t, m, "research") {
		if in.GetState() == troupev1.InstanceState_INSTANCE_STATE_READY && !in.GetMissing() {
			all = append(all, in)
		}
	}
	return all
}

func findReady(t *testing.T, m *rig.Mesh, id string) *troupev1.Instance {
	t.Helper()
	for _, in := range readyInstances(t, m) {
		if in.GetInstanceId() == id {
			return in
		}
	}
	return nil
}

// runUnderLoad sends requests to the agent research while do runs, at least one for each client. It returns the
// number of turns. No turn may fail.
func runUnderLoad(t *testing.T, m *rig.Mesh, do func()) (turns int) {
	t.Helper()
	const clients = 8
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	counts := make([]int, clients)
	var group errgroup.Group
	for n := range clients {
		group.Go(func() error {
			for counts[n] == 0 || ctx.Err() == nil {
				req := textRequest(question)
				req.Target = "research"
				events, err := collectEvents(context.WithoutCancel(ctx), m, req)
				if err != nil {
					return err
				}
				if outcome := turnResult(events); outcome.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED {
					t.Errorf("a turn failed: %v", outcome.GetFailure())
				}
				counts[n]++
			}
			return nil
		})
	}
	do()
	stop()
	require.NoError(t, group.Wait())
	for _, n := range counts {
		turns += n
	}
	return turns
}

func revokedLeaseIsReplaced(t *testing.T, m *rig.Mesh) {
	victim := readyInstances(t, m)[0]
	var took time.Duration
	turns := runUnderLoad(t, m, func() {
		began := time.Now()
		m.Stores.RevokeLease(victim.GetAgent(), victim.GetInstanceId())
		m.Await("it is registered anew", func() bool {
			in := findReady(t, m, victim.GetInstanceId())
			return in != nil && in.GetIncarnation() > victim.GetIncarnation()
		})
		took = time.Since(began)
	})
	require.Len(t, readyInstances(t, m), 2)
	t.Logf("registered anew after %s; %d turns meanwhile, none failed", took.Round(time.Millisecond), turns)
}

func etcdRestartFailsNoTurn(t *testing.T, m *rig.Mesh) {
	turns := runUnderLoad(t, m, func() {
		m.Stop(rig.Etcd)
		runUnderLoad(t, m, func() {}) // at least one turn of each client without etcd
		m.Start(rig.Etcd)
		m.Await("all are registered", func() bool { return len(readyInstances(t, m)) == 2 })
	})
	t.Logf("%d turns, none failed", turns)
}

// When no lease can be renewed, workers cannot know whether theirs is still valid. They continue to work (guarantee F9).
func etcdOutageBeyondLeasesFailsNoTurn(t *testing.T, m *rig.Mesh) {
	var out time.Duration
	turns := runUnderLoad(t, m, func() {
		m.Stop(rig.Etcd)
		stopped := time.Now()
		m.Await("no worker knows its lease", func() bool { return countLeases(t, m, leaseUnknown) == 2 })
		m.Await("every lease would have run out", func() bool { return time.Since(stopped) > leaseTime+maxLeaseDelay })
		require.Equal(t, 2, countLeases(t, m, leaseUnknown))
		require.Len(t, readyInstances(t, m), 2, "and they take steps")
		m.Start(rig.Etcd)
		out = time.Since(stopped)
		m.Await("all leases are kept", func() bool { return countLeases(t, m, leaseKept) == 2 })
		require.Len(t, readyInstances(t, m), 2)
	})
	t.Logf("etcd was away for %s; %d turns meanwhile, none failed", out.Round(time.Millisecond), turns)
}

const (
	leaseKept    = troupev1.LeaseState_LEASE_STATE_OK
	leaseUnknown = troupev1.LeaseState_LEASE_STATE_UNKNOWN
)

// countLeases counts the workers of the agent research that accept steps and report the given lease state.
func countLeases(t *testing.T, m *rig.Mesh, s troupev1.LeaseState) (n int) {
	t.Helper()
	resp, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "research", Live: true})
	require.NoError(t, err)
	for _, in := range resp.GetInstances() {
		state := in.GetStatus().GetState()
		working := state == troupev1.InstanceState_INSTANCE_STATE_READY || state == troupev1.InstanceState_INSTANCE_STATE_BUSY
		if working && in.GetStatus().GetLease() == s {
			n++
		}
	}
	return n
}

// Another worker runs the steps of a killed worker. The registration of the killed worker ends with its lease.
func killedWorkerFailsNoTurn(t *testing.T, m *rig.Mesh) {
	second := rig.SecondWorker("research")
	id := m.InstanceOf(second)
	m.Kill(second)
	killed := time.Now()
	turns := runUnderLoad(t, m, func() {
		m.Await("its registration is gone", func() bool { return findReady(t, m, id) == nil })
	})
	gone := time.Since(killed)
	require.LessOrEqual(t, gone, leaseTime+maxLeaseDelay)
	t.Logf("gone after %s; %d turns meanwhile, none failed", gone.Round(time.Millisecond), turns)
	m.Start(second)
	m.Await("two instances", func() bool { return len(readyInstances(t, m)) == 2 })
}

// A worker that was frozen for longer than its lease registers again with a higher incarnation, and accepts steps
// again.
func frozenWorkerRegistersAgain(t *testing.T, m *rig.Mesh) {
	second := rig.SecondWorker("research")
	before := findReady(t, m, m.InstanceOf(second))
	thaw := m.Freeze(second)
	defer thaw()
	m.Await("its lease has run out", func() bool { return !m.Stores.IsRegistered(before.GetAgent(), before.GetInstanceId()) })
	thaw()
	m.Await("it is registered anew", func() bool {
		in := findReady(t, m, before.GetInstanceId())
		return in != nil && in.GetIncarnation() > before.GetIncarnation()
	})
	worked := false
	for range 4 { // alternately
		req := textRequest(question)
		req.Target = "research"
		for _, e := range runTurn(t, m, req) {
			worked = worked || e.GetInstanceId() == before.GetInstanceId()
		}
	}
	require.True(t, worked, "it takes steps again")
}
