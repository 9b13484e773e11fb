package scenario

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

var tooShort = durationpb.New(time.Millisecond)

// Req: SO-9
func sessionsAndTracesSurviveRestarts(t *testing.T, m *rig.Mesh) {
	req := textRequest(question)
	before := runTurn(t, m, req)
	m.Restart(rig.Memory)
	m.Restart(rig.Orchestrator)
	m.AwaitReady()
	require.Empty(t, cmp.Diff(durableEvents(before), durableEvents(runTurn(t, m, req)), protocmp.Transform()))
	for _, p := range []rig.Part{rig.Memory, rig.Orchestrator} {
		m.Kill(p)
		m.Start(p)
	}
	m.AwaitReady()

	again := runTurn(t, m, req)
	require.Empty(t, cmp.Diff(durableEvents(before), durableEvents(again), protocmp.Transform()), "the finished trace is there")
	next := textRequest("And who may write to MEMORY?")
	next.SessionId = req.SessionId
	require.EqualValues(t, 2, runTurn(t, m, next)[0].GetTurn(), "and so is the session")
}

func redisOutageLosesNothing(t *testing.T, m *rig.Mesh) { checkOutageLosesNothing(t, m, rig.Redis) }

func memoryServiceKillLosesNothing(t *testing.T, m *rig.Mesh) {
	checkOutageLosesNothing(t, m, rig.Memory)
}

// checkOutageLosesNothing kills a part during a turn, which ends once the part is back. In the meantime a call is
// rejected with system_network. Afterwards the repeated request returns the same events.
func checkOutageLosesNothing(t *testing.T, m *rig.Mesh, p rig.Part) {
	t.Helper()
	resume := pauseWorker(t, m, "research")
	req := textRequest(question)
	var events []*troupev1.Event
	for e, err := range m.Turn(t.Context(), req) {
		require.NoError(t, err)
		events = append(events, e)
		if e.GetWarning().GetReason() != "WAITING" {
			continue
		}
		m.Kill(p)
		resume()
		m.Await("the orchestrator is not ready", func() bool { return !m.IsReady(rig.Orchestrator) })
		_, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: req.SessionId})
		require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.SystemNetwork), "%v", err)
		m.Start(p)
	}
	checkTrace(t, events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
	m.AwaitReady()
	require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(runTurn(t, m, req)), protocmp.Transform()))
}

// Req: LP-39
func turnsRunWithoutEtcd(t *testing.T, m *rig.Mesh) {
	m.Stop(rig.Etcd)
	for range 3 {
		require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(runTurn(t, m, textRequest(question))).GetOutcome())
	}
	require.True(t, m.IsReady(rig.Orchestrator), "etcd does not decide readiness once it was there")
	m.Start(rig.Etcd)
	m.AwaitReady()
	m.Restart(rig.Worker("synthesis"))
	m.AwaitReady()
	runTurn(t, m, textRequest(question))
}

// Req: OC-6
func missingAgentFailsOnlyTheTurn(t *testing.T, m *rig.Mesh) {
	m.Stop(rig.Worker("synthesis"))
	m.Await("synthesis is deregistered", func() bool {
		resp, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "synthesis"})
		return err == nil && len(resp.GetInstances()) == 0
	})
	req := textRequest(question)
	events := runTurn(t, m, req)
	r := turnResult(events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_FAILED, r.GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_NO_WORKER, r.GetFailure().GetMode())
	require.Contains(t, r.GetFailure().GetMessage(), "synthesis")
	s, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: req.SessionId})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_FAILED, s.GetSession().GetState())

	m.Start(rig.Worker("synthesis"))
	m.AwaitReady()
	next := textRequest(question)
	next.SessionId = req.SessionId
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(runTurn(t, m, next)).GetOutcome())
}

// A turn waits for an agent while the agent's worker is being replaced.
func turnWaitsForARestartedWorker(t *testing.T, m *rig.Mesh) {
	m.Stop(rig.Worker("research"))
	started := false
	var events []*troupev1.Event
	for e, err := range m.Turn(t.Context(), textRequest(question)) {
		require.NoError(t, err)
		events = append(events, e)
		if e.GetWarning().GetReason() == "WAITING" && !started {
			started = true
			m.Start(rig.Worker("research"))
		}
	}
	require.True(t, started)
	checkTrace(t, events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
	m.AwaitReady()
}
