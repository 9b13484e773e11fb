package main

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/rpc"
	"github.com/troupe-dev/troupe/pkg/telemetry"
)

// timed is an orchestrator that notes how much time its callers have.
type timed struct {
	troupev1.UnimplementedOrchestratorServiceServer
	left time.Duration
}

func (s *timed) note(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	s.left = time.Until(deadline)
}

func (s *timed) PauseAgent(ctx context.Context, _ *troupev1.PauseAgentRequest) (*troupev1.PauseAgentResponse, error) {
	s.note(ctx)
	return &troupev1.PauseAgentResponse{}, nil
}

func (s *timed) ResumeAgent(ctx context.Context, _ *troupev1.ResumeAgentRequest) (*troupev1.ResumeAgentResponse, error) {
	s.note(ctx)
	return &troupev1.ResumeAgentResponse{}, nil
}

// The orchestrator asks the registry and every worker, and takes back what failed: the one
// who waits must not give up before it has answered.
func TestOperate_WaitsAsLongAsTheOrchestratorMayTake(t *testing.T) {
	const most = 15 * time.Second
	s := &timed{}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{})
	require.NoError(t, err)
	troupev1.RegisterOrchestratorServiceServer(server, s)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Part(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	for within, verb := range map[time.Duration][]string{
		0:               {"resume"},
		2 * time.Minute: {"pause", "--within", "2m"},
	} {
		require.Zero(t, run(t.Context(), append(verb, "--addr", lis.Addr().String(), "research"), terminal{io.Discard, io.Discard, false}))
		require.Greater(t, s.left, within+most, "%s", verb)
	}
}
