package turn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/wire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Each attempt gets a credential for its agent, turn and epoch. No stored or visible data contains the credential
// (guarantee S6).
func TestTurn_IssuesACredentialForEachAttempt(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		return s.cutConnections()
	})
	dir := t.TempDir()
	open := func(role identity.Role) *turncred.Authority {
		self, err := identity.Open(identity.Config{DevCA: dir}, role, "", zap.NewNop())
		require.NoError(t, err)
		return turncred.New(self)
	}
	runner, memory := rig.newRunner(t, "one"), open(identity.Memory)
	replaceRunner(t, runner, func(c *Config) { c.Credentials = open(identity.Orchestrator) })
	req := textRequest("s1", "r1")
	req.User = "ann"
	events := runToEnd(t, runner, req)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))

	var epochs []int64
	record, err := runner.cfg.Traces.Store().Get(t.Context(), trace.Ref{Tenant: req.Tenant, Trace: events[0].GetTraceId()})
	require.NoError(t, err)
	shown := fmt.Sprint(events, record, rig.redis.Dump(), rig.memory)
	for _, step := range rig.receivedSteps() {
		given, err := memory.Verify(step.GetCredential())
		require.NoError(t, err)
		require.Equal(t, turncred.Turn{
			Agent: step.GetAgent(), Tenant: req.Tenant, Session: "s1", ID: step.GetTurnId(), User: "ann",
			Trace: step.GetTraceId(), Epoch: step.GetEpoch(), Step: int(step.GetStep()),
			Root: step.GetTraceId(), Budget: wire.LimitsFromProto(step.GetBudget()),
		}, given)
		require.Equal(t, req.Tenant, step.GetTenant())
		require.NotContains(t, shown, step.GetCredential())
		epochs = append(epochs, step.GetEpoch())
	}
	require.Equal(t, []int64{1, 1, 2, 2}, epochs, "coordinator, research that was lost, research, synthesis")

	runToEnd(t, rig.newRunner(t, "two"), textRequest("s2", "r2"))
	require.Empty(t, lastRequest(rig.receivedSteps()).GetCredential(), "without an identity there is none")
}

func lastRequest(steps []*troupev1.ExecuteStepRequest) *troupev1.ExecuteStepRequest {
	return steps[len(steps)-1]
}
