package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// turnsInFlight is the number of turns that run at the agent when it is quarantined.
const turnsInFlight = 8

// quarantineDeadline is the time within which a quarantine must take full effect (guarantee S18).
const quarantineDeadline = 2 * time.Second

// A quarantine takes full effect within 2 s of the call. It remains in force when processes restart, and ends when
// it is released (guarantee S18). The audit logs are intact and name the operator (guarantee S19). The test uses
// real processes.
func TestQuarantine_Binaries(t *testing.T) {
	t.Parallel()
	m := rig.StartBinaries(t, rig.Config{WatchQuarantines: true, AuditLogFolder: t.TempDir()})
	s := newGatedMesh(t, m)
	memory := troupev1.NewMemoryServiceClient(s.DialAs(identity.ID{Role: identity.Worker, Name: "slow"}, rig.Memory))
	isRejected := func() bool {
		// The call belongs to no turn, so it cannot change any data.
		_, err := memory.PutConfig(t.Context(), &troupev1.PutConfigRequest{Agent: "slow"})
		return failure.Is(grpcfailure.FromStatus("", err), failure.PolicySecurity)
	}
	require.False(t, isRejected())
	var waits []func() []*troupev1.Event
	for range turnsInFlight {
		req, key := slowRequest("hold")
		waits = append(waits, s.startTurn(t, req))
		s.gate.AwaitCall(t, key)
	}

	began := time.Now()
	resp, err := s.QuarantineAgent(t.Context(), &troupev1.QuarantineAgentRequest{Agent: "slow", Reason: "a drill"})
	require.NoError(t, err)
	answered := time.Since(began)
	for _, wait := range waits {
		why := grpcfailure.FromProto(turnResult(wait()).GetFailure())
		require.Equal(t, failure.PolicySecurity, why.Mode, "%v", why)
	}
	ended := time.Since(began)
	require.True(t, isRejected())
	require.Less(t, time.Since(began), quarantineDeadline)
	require.Len(t, resp.GetInstances(), slowWorkers)
	for _, out := range resp.GetInstances() {
		require.Nil(t, out.GetFailure())
		require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_PAUSED, out.GetStatus().GetState())
	}
	t.Logf("the call was answered, and %d workers had paused, after %s; the last of %d turns ended after %s", slowWorkers, answered, turnsInFlight, ended)

	shut := func() {
		t.Helper()
		req, _ := slowRequest("hold")
		require.Equal(t, failure.PolicySecurity, grpcfailure.FromProto(turnResult(runTurn(t, m, req)).GetFailure()).Mode)
		require.NotNil(t, listInstances(t, m, "slow")[0].GetQuarantine())
		s.Await("the memory service knows it", isRejected)
	}
	shut()
	s.Restart(rig.Orchestrator)
	s.Restart(rig.Memory)
	part, _ := rig.SlowWorker(s.gate, 1)
	s.Restart(part)
	s.AwaitReady()
	shut()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(runTurn(t, m, textRequest(question))).GetOutcome(), "other agents work")

	_, err = s.ReleaseAgent(t.Context(), &troupev1.ReleaseAgentRequest{Agent: "slow"})
	require.NoError(t, err)
	s.awaitAll(t)
	req, key := slowRequest("hold")
	wait := s.startTurn(t, req)
	s.gate.AwaitCall(t, key)
	s.gate.Open(key)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(wait()).GetOutcome())

	s.Stop(rig.Orchestrator) // stopping it completes its audit log
	kinds := map[audit.Kind]map[string]int{}
	for _, p := range []rig.Part{rig.Orchestrator, rig.Memory, part} {
		_, err := audit.Verify([]string{m.AuditLog(p)}, "", func(_ string, _ int, r audit.RecordedEntry) {
			if kinds[r.Kind] == nil {
				kinds[r.Kind] = map[string]int{}
			}
			kinds[r.Kind][r.Action]++
		})
		require.NoError(t, err)
	}
	require.Equal(t, 1, kinds[audit.Admin][troupev1.OrchestratorService_QuarantineAgent_FullMethodName])
	require.Equal(t, 1, kinds[audit.Admin][troupev1.OrchestratorService_ReleaseAgent_FullMethodName])
	require.NotZero(t, kinds[audit.Lifecycle][troupev1.LifecycleService_Pause_FullMethodName])
	require.NotZero(t, kinds[audit.Lifecycle]["startup"])
	require.NotZero(t, kinds[audit.Lifecycle]["shutdown"], "by a signal")
	require.NotZero(t, kinds[audit.Denied][troupev1.MemoryService_PutConfig_FullMethodName])
	require.GreaterOrEqual(t, kinds[audit.Denied]["end turn of quarantined agent"], turnsInFlight)
}
