package scenario

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// checkFailedTurnIsResumed makes the third of three steps fail, after a tool that may run only once. The resumed
// turn runs only that step and does not repeat the tool, although its orchestrator is killed. Then a fork from the
// second step runs in a new session.
// Req: OC-27
func (g *gatedMesh) checkFailedTurnIsResumed(t *testing.T) {
	key := uuid.NewString()
	req := textRequest("break " + key)
	req.Target = "relay"
	broken := runTurn(t, g.Mesh, req)
	p := turnResult(broken).GetPartial()
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_RESOURCE_API, turnResult(broken).GetFailure().GetMode(), "%v", turnResult(broken))
	require.Equal(t, []int32{1, 2}, p.GetCompletedSteps())
	require.Equal(t, []int32{3}, p.GetFailedSteps())
	require.True(t, p.GetRecoverable())
	require.Equal(t, 1, g.gate.ToolNotes(key))

	from := broken[0].GetTraceId()
	again := &troupev1.OrchestrateRequest{RequestId: uuid.NewString(), From: &troupev1.From{TraceId: from}}
	g.gate.Repair(key)
	wait := g.startTurn(t, again)
	g.gate.AwaitCall(t, key)
	g.Kill(rig.Orchestrator)
	g.Start(rig.Orchestrator)
	g.gate.AwaitCall(t, key)
	g.gate.Open(key)
	on := wait()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"slow"}, agentsThatRan(on))
	require.Equal(t, req.GetSessionId(), on[0].GetSessionId())
	require.Equal(t, 1, g.gate.ToolNotes(key), "a tool that may run once ran once")
	require.Equal(t, 1, g.gate.ModelCalls(key), "what the model had said is in the journal")
	rejection := requireRejected(t, g.Mesh, &troupev1.OrchestrateRequest{RequestId: uuid.NewString(), From: &troupev1.From{TraceId: from}})
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(rejection), "%v", rejection)

	fork := &troupev1.OrchestrateRequest{RequestId: uuid.NewString(), From: &troupev1.From{TraceId: from, Step: 2, Fork: true}}
	other := runTurn(t, g.Mesh, fork)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(other).GetOutcome(), "%v", turnResult(other))
	require.Equal(t, []string{"research", "slow"}, agentsThatRan(other))
	require.NotEqual(t, req.GetSessionId(), other[0].GetSessionId())
	require.Equal(t, 2, g.gate.ToolNotes(key), "a fork does anew what it does")
}
