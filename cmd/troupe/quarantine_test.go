package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// quarantinedMesh is an orchestrator with one quarantined agent.
type quarantinedMesh struct {
	troupev1.UnimplementedOrchestratorServiceServer
	requests []string
}

func (q *quarantinedMesh) QuarantineAgent(_ context.Context, req *troupev1.QuarantineAgentRequest) (*troupev1.QuarantineAgentResponse, error) {
	q.requests = append(q.requests, req.GetAgent()+": "+req.GetReason())
	return &troupev1.QuarantineAgentResponse{}, nil
}

func (q *quarantinedMesh) ReleaseAgent(_ context.Context, req *troupev1.ReleaseAgentRequest) (*troupev1.ReleaseAgentResponse, error) {
	q.requests = append(q.requests, "release "+req.GetAgent())
	return &troupev1.ReleaseAgentResponse{}, nil
}

func quarantineRecord() *troupev1.Quarantine {
	return &troupev1.Quarantine{Reason: "it misbehaves", Since: timestamppb.New(time.Now())}
}

func (q *quarantinedMesh) ListAgents(context.Context, *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	return &troupev1.ListAgentsResponse{Agents: []*troupev1.Agent{{Name: "research", Quarantine: quarantineRecord()}}}, nil
}

func (q *quarantinedMesh) instance() *troupev1.Instance {
	return &troupev1.Instance{
		InstanceId: "r-1", Agent: "research", Quarantine: quarantineRecord(), Unproven: "it is another",
		State: troupev1.InstanceState_INSTANCE_STATE_READY,
	}
}

func (q *quarantinedMesh) ListInstances(context.Context, *troupev1.ListInstancesRequest) (*troupev1.ListInstancesResponse, error) {
	return &troupev1.ListInstancesResponse{Instances: []*troupev1.Instance{q.instance()}}, nil
}

func (q *quarantinedMesh) DescribeInstance(context.Context, *troupev1.DescribeInstanceRequest) (*troupev1.DescribeInstanceResponse, error) {
	return &troupev1.DescribeInstanceResponse{Instance: q.instance()}, nil
}

func TestQuarantine_IsSetAndPrinted(t *testing.T) {
	s := &quarantinedMesh{}
	addr := clitest.Serve(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterOrchestratorServiceServer(r, s) })
	told := func(want int, args ...string) string {
		var text bytes.Buffer
		require.Equal(t, want, run(t.Context(), append(args, "--addr", addr), console.Terminal{Out: &text, Err: &text}), text.String())
		return text.String()
	}
	require.Contains(t, told(0, "quarantine", "research", "--reason", "it misbehaves"), "is that its name?")
	require.Contains(t, told(2, "quarantine", "research"), "--reason")
	told(0, "release", "research")
	require.Equal(t, []string{"research: it misbehaves", "release research"}, s.requests)
	require.Contains(t, told(0, "get", "agents"), "quarantined for 0s: it misbehaves")
	require.Contains(t, told(0, "get", "instances"), "ready, quarantined, unproven")
	text := told(0, "describe", "instance", "r-1")
	require.Contains(t, text, "quarantined for 0s: it misbehaves")
	require.Contains(t, text, "it is another")
}
