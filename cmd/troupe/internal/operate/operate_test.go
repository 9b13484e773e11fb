package operate

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// deadlineRecorder is an orchestrator that records the remaining time until the deadline of each call.
type deadlineRecorder struct {
	troupev1.UnimplementedOrchestratorServiceServer
	callTimeout time.Duration
}

func (d *deadlineRecorder) recordDeadline(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	d.callTimeout = time.Until(deadline)
}

func (d *deadlineRecorder) PauseAgent(ctx context.Context, _ *troupev1.PauseAgentRequest) (*troupev1.PauseAgentResponse, error) {
	d.recordDeadline(ctx)
	return &troupev1.PauseAgentResponse{}, nil
}

func (d *deadlineRecorder) ResumeAgent(ctx context.Context, _ *troupev1.ResumeAgentRequest) (*troupev1.ResumeAgentResponse, error) {
	d.recordDeadline(ctx)
	return &troupev1.ResumeAgentResponse{}, nil
}

// quarantinedMesh is an orchestrator with a quarantined agent, whose instances accept no steps until it is
// released.
type quarantinedMesh struct {
	troupev1.UnimplementedOrchestratorServiceServer
}

func (quarantinedMesh) ResumeAgent(context.Context, *troupev1.ResumeAgentRequest) (*troupev1.ResumeAgentResponse, error) {
	return &troupev1.ResumeAgentResponse{Instances: []*troupev1.InstanceOutcome{
		{InstanceId: "slow-1", Status: &troupev1.InstanceStatus{State: troupev1.InstanceState_INSTANCE_STATE_READY}},
	}}, nil
}

func (quarantinedMesh) ListAgents(context.Context, *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	return &troupev1.ListAgentsResponse{Agents: []*troupev1.Agent{
		{Name: "other"}, {Name: "slow", Quarantine: &troupev1.Quarantine{Reason: "it lies", Since: timestamppb.Now()}},
	}}, nil
}

func (quarantinedMesh) ReleaseAgent(context.Context, *troupev1.ReleaseAgentRequest) (*troupev1.ReleaseAgentResponse, error) {
	return &troupev1.ReleaseAgentResponse{}, nil
}

// `troupe resume` says when the agent is still quarantined. `troupe release` says that the quarantine has ended.
func TestOperate_PrintsWhetherAgentIsQuarantined(t *testing.T) {
	addr := clitest.Serve(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterOrchestratorServiceServer(r, quarantinedMesh{}) })
	said := func(line ...string) string {
		var told bytes.Buffer
		require.Zero(t, run(t.Context(), append(line, "--addr", addr), console.Terminal{Out: &told, Err: &told}), told.String())
		return told.String()
	}
	require.Regexp(t,
		`slow-1 +ready +-\nagent slow still gets no steps: it is quarantined for \ds: it lies; end the quarantine with: troupe release slow\n$`, said("resume", "slow"))
	require.NotContains(t, said("resume", "other"), "agent other")
	require.Equal(t, "agent slow is no longer quarantined; instances that were paused before stay paused, until: troupe resume slow\n"+
		"no instance of it takes steps: none is registered, or each is paused or drains\n", said("release", "slow"))
}

// The command must wait longer than the orchestrator needs, because the orchestrator calls the registry and every
// worker, and rolls back after a failure.
func TestOperate_TimesOutAfterTheOrchestrator(t *testing.T) {
	const most = 15 * time.Second
	s := &deadlineRecorder{}
	addr := clitest.Serve(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterOrchestratorServiceServer(r, s) })
	for within, verb := range map[time.Duration][]string{
		0:               {"resume"},
		2 * time.Minute: {"pause", "--timeout", "2m"},
	} {
		require.Zero(t, run(t.Context(), append(verb, "--addr", addr, "research"), console.Terminal{Out: io.Discard, Err: io.Discard}))
		require.Greater(t, s.callTimeout, within+most, "%s", verb)
	}
}
