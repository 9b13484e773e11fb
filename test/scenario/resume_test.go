package scenario

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// checkFailedTurnIsResumed fails the third of three steps, after a tool that may run once. The resumed turn
// runs only that step and does not repeat the tool, although its orchestrator is killed. A fork from the
// second step then runs in a session of its own.
//
// Req: OC-27
func (s *gatedMesh) checkFailedTurnIsResumed(t *testing.T) {
	key := uuid.NewString()
	req := text("break " + key)
	req.Target = "relay"
	broken := ask(t, s.Mesh, req)
	p := result(broken).GetPartial()
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_RESOURCE_API, result(broken).GetFailure().GetMode(), "%v", result(broken))
	require.Equal(t, []int32{1, 2}, p.GetCompletedSteps())
	require.Equal(t, []int32{3}, p.GetFailedSteps())
	require.True(t, p.GetRecoverable())
	require.Equal(t, 1, s.gate.Notes(key))

	from := broken[0].GetTraceId()
	again := &troupev1.OrchestrateRequest{RequestId: uuid.NewString(), From: &troupev1.From{TraceId: from}}
	s.gate.Repair(key)
	wait := s.startTurn(t, again)
	s.gate.AwaitCall(t, key)
	s.Kill(rig.Orchestrator)
	s.Start(rig.Orchestrator)
	s.gate.AwaitCall(t, key)
	s.gate.Open(key)
	on := wait()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result(on).GetOutcome(), "%v", result(on))
	require.Equal(t, []string{"slow"}, agentsThatRan(on))
	require.Equal(t, req.GetSessionId(), on[0].GetSessionId())
	require.Equal(t, 1, s.gate.Notes(key), "a tool that may run once ran once")
	require.Equal(t, 1, s.gate.ModelCalls(key), "what the model had said is in the journal")
	refusal := requireRejected(t, s.Mesh, &troupev1.OrchestrateRequest{RequestId: uuid.NewString(), From: &troupev1.From{TraceId: from}})
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(refusal), "%v", refusal)

	fork := &troupev1.OrchestrateRequest{RequestId: uuid.NewString(), From: &troupev1.From{TraceId: from, Step: 2, Fork: true}}
	other := ask(t, s.Mesh, fork)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result(other).GetOutcome(), "%v", result(other))
	require.Equal(t, []string{"research", "slow"}, agentsThatRan(other))
	require.NotEqual(t, req.GetSessionId(), other[0].GetSessionId())
	require.Equal(t, 2, s.gate.Notes(key), "a fork does anew what it does")
}
