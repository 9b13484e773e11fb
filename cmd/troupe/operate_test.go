package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
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
	addr := served(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterOrchestratorServiceServer(r, s) })
	for within, verb := range map[time.Duration][]string{
		0:               {"resume"},
		2 * time.Minute: {"pause", "--within", "2m"},
	} {
		require.Zero(t, run(t.Context(), append(verb, "--addr", addr, "research"), terminal{out: io.Discard, err: io.Discard}))
		require.Greater(t, s.left, within+most, "%s", verb)
	}
}
