package scenario

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// listInstances returns the registered instances of an agent.
func listInstances(t *testing.T, m *rig.Mesh, agent string) []*troupev1.Instance {
	t.Helper()
	resp, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: agent})
	require.NoError(t, err)
	return resp.GetInstances()
}

func pauseAgent(t *testing.T, m *rig.Mesh, agent string, want int) {
	t.Helper()
	resp, err := m.PauseAgent(t.Context(), &troupev1.PauseAgentRequest{Agent: agent, Reason: "a closer look"})
	require.NoError(t, err)
	require.Len(t, resp.GetInstances(), want)
	for _, o := range resp.GetInstances() {
		require.Nil(t, o.GetFailure())
		require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_PAUSED, o.GetStatus().GetState())
	}
}

func resumeAgent(t *testing.T, m *rig.Mesh, agent string) {
	t.Helper()
	resp, err := m.ResumeAgent(t.Context(), &troupev1.ResumeAgentRequest{Agent: agent})
	require.NoError(t, err)
	for _, o := range resp.GetInstances() {
		require.Nil(t, o.GetFailure())
		require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_READY, o.GetStatus().GetState())
	}
}

func turnWaitsForAPausedAgent(t *testing.T, m *rig.Mesh) {
	pauseAgent(t, m, "research", 1)
	m.Await("every client sees it", func() bool {
		in := listInstances(t, m, "research")[0]
		return in.GetState() == troupev1.InstanceState_INSTANCE_STATE_PAUSED &&
			in.GetDesired() == troupev1.DesiredState_DESIRED_STATE_PAUSE && in.GetDesiredReason() == "a closer look"
	})
	m.Restart(rig.Orchestrator) // the desired state outlives the orchestrator that recorded it
	m.Await("the next one knows it", func() bool {
		resp, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "research"})
		return err == nil && len(resp.GetInstances()) == 1 && resp.GetInstances()[0].GetDesired() == troupev1.DesiredState_DESIRED_STATE_PAUSE
	})
	described, err := m.DescribeInstance(t.Context(), &troupev1.DescribeInstanceRequest{InstanceId: listInstances(t, m, "research")[0].GetInstanceId()})
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_PAUSED, described.GetStatus().GetState())
	require.Equal(t, "a closer look", described.GetStatus().GetReason())
	require.Positive(t, described.GetMetrics().GetStateTransitions())

	waited := false
	var events []*troupev1.Event
	for e, err := range m.Turn(t.Context(), textRequest(question)) {
		require.NoError(t, err)
		events = append(events, e)
		if e.GetWarning().GetReason() == "WAITING" && !waited {
			waited = true
			resumeAgent(t, m, "research")
		}
	}
	require.True(t, waited)
	checkTrace(t, events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
	m.AwaitReady()
}

// Req: LC-23
func drainedInstanceExitsAndIsDeregistered(t *testing.T, m *rig.Mesh) {
	before := listInstances(t, m, "synthesis")[0].GetInstanceId()
	resp, err := m.DrainInstance(t.Context(), &troupev1.DrainInstanceRequest{InstanceId: before, Drain: durationpb.New(drainTime)})
	require.NoError(t, err)
	require.Empty(t, resp.GetErrors())
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_TERMINATED, resp.GetStatus().GetState())
	m.AwaitExit(rig.Worker("synthesis"), drainTime)
	m.Await("it is gone", func() bool { return len(listInstances(t, m, "synthesis")) == 0 })
	_, err = m.DrainInstance(t.Context(), &troupev1.DrainInstanceRequest{InstanceId: before})
	require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.NotFound), "%v", err)
	m.Start(rig.Worker("synthesis"))
	m.AwaitReady()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(runTurn(t, m, textRequest(question))).GetOutcome())
}

func operatorCommandsFailWithoutEtcd(t *testing.T, m *rig.Mesh) {
	m.Stop(rig.Etcd)
	_, err := m.PauseAgent(t.Context(), &troupev1.PauseAgentRequest{Agent: "research"})
	require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.SystemNetwork), "%v", err)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(runTurn(t, m, textRequest(question))).GetOutcome(), "nothing was changed")
	m.Start(rig.Etcd)
	m.AwaitReady()
}

const (
	drainTime  = 10 * time.Second
	drainTurns = 200 // number of turns
)

func TestDrain_InProcess(t *testing.T) {
	checkDrainLosesNoTurn(t, rig.StartInProcess(t, rig.Config{RouteWait: time.Minute, MaxTurns: drainTurns}))
}

func TestDrain_Binaries(t *testing.T) {
	checkDrainLosesNoTurn(t, rig.StartBinaries(t, rig.Config{RouteWait: time.Minute, MaxTurns: drainTurns}))
}

// When one of two instances is drained, none of 200 turns in flight fails.
func checkDrainLosesNoTurn(t *testing.T, m *rig.Mesh) {
	m.Start(rig.SecondWorker("research"))
	m.Await("two instances", func() bool {
		all := listInstances(t, m, "research")
		return len(all) == 2 && all[0].GetState() == troupev1.InstanceState_INSTANCE_STATE_READY && all[1].GetState() == all[0].GetState()
	})
	pauseAgent(t, m, "research", 2) // until all turns are in flight

	var waiting, finished sync.WaitGroup
	waiting.Add(drainTurns)
	var done atomic.Int32
	some := make(chan struct{})
	var mu sync.Mutex
	worked := map[string]int{} // steps by instance
	for range drainTurns {
		finished.Go(func() {
			req := textRequest(question)
			req.Target = "research"
			told := false
			for e, err := range m.Turn(t.Context(), req) {
				if err != nil {
					t.Errorf("session %s: %v", req.GetSessionId(), err)
					break
				}
				if e.GetWarning().GetReason() == "WAITING" && !told {
					told = true
					waiting.Done()
				}
				if e.GetStepStarted() != nil {
					mu.Lock()
					worked[e.GetInstanceId()]++
					mu.Unlock()
				}
				if r := e.GetTurnResult(); r != nil && r.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED {
					t.Errorf("trace %s: %v", e.GetTraceId(), r.GetFailure())
				}
			}
			if !told {
				t.Error("a turn was not in flight before the drain")
				waiting.Done()
			}
			if done.Add(1) == drainTurns/10 {
				close(some)
			}
		})
	}
	waiting.Wait()
	resumeAgent(t, m, "research")
	<-some
	second := m.InstanceOf(rig.SecondWorker("research"))
	began := time.Now()
	resp, err := m.DrainInstance(t.Context(), &troupev1.DrainInstanceRequest{
		InstanceId: second, Agent: "research", Reason: "an upgrade", Drain: durationpb.New(drainTime),
	})
	require.NoError(t, err)
	require.Empty(t, resp.GetErrors(), "no step was cancelled")
	left := drainTurns - done.Load()
	m.AwaitExit(rig.SecondWorker("research"), drainTime)
	require.Less(t, time.Since(began), drainTime)
	finished.Wait()
	require.Len(t, worked, 2, "both had worked")
	t.Logf("drained in %s with %d of %d turns left; steps by instance %v", time.Since(began), left, drainTurns, worked)
	m.Await("one instance is left", func() bool { return len(listInstances(t, m, "research")) == 1 })
}
