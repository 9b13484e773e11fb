package worker_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// externalServer is a server outside of the mesh that records the metadata of its calls.
type externalServer struct {
	healthpb.UnimplementedHealthServer
	calls []metadata.MD
}

// Check implements healthpb.HealthServer.
func (e *externalServer) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	e.calls = append(e.calls, md)
	return &healthpb.HealthCheckResponse{}, nil
}

func (e *externalServer) serve(t *testing.T) *grpc.ClientConn {
	t.Helper()
	lis, err := net.Listen("tcp", anyPort)
	require.NoError(t, err)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, e)
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	conn, err := rpc.Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()); server.Stop(); require.NoError(t, <-done) })
	return conn
}

// The credential of a turn is sent to the memory service with every call of a step and of its replay. It is
// neither stored nor sent anywhere else (guarantee S6).
func TestExecuteStep_SendsItsCredentialOnlyToTheMemoryService(t *testing.T) {
	mesh := identity.Config{DevCA: t.TempDir()}
	s := newWorkerEnvWithIdentity(t, mesh)
	outside := &externalServer{}
	conn := outside.serve(t)
	made := func() agent.Config {
		busy, err := tool.Func("busy", "Uses all.", func(ctx context.Context, _ noArguments) (string, error) {
			_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
			return "done", err
		})
		require.NoError(t, err)
		keeps := hook.Plugin{Name: "keeps", Handlers: []hook.Handler{hook.BeforeTools(func(ctx context.Context, round *hook.Round) error {
			_, err := round.Turn.Memory().SaveArtifact(ctx, "note.txt", "text/plain", []byte("a note"))
			if _, absent := round.Turn.Memory().Get(ctx, "other"); !strings.Contains(absent.Error(), "there is no such key") {
				return absent
			}
			return errors.Join(err, round.Turn.Memory().Set("seen", 1))
		})}}
		return agent.Config{
			Name: "a", Tools: []tool.Tool{busy}, Plugins: []hook.Plugin{keeps},
			Model: scripted.New(scripted.Call(conversation.ToolCall{ID: "c1", Name: "busy", Arguments: "{}"}), scripted.Say("Done."), scripted.Say("More.")),
		}
	}
	self, err := identity.Open(mesh, identity.Orchestrator, "", zap.NewNop())
	require.NoError(t, err)
	signer := turncred.New(self)
	r := s.start(t, made())
	req := s.beginTurn(t, "a", "s1")
	req.Recorded, req.Tenant = true, identity.DefaultTenant
	turn := turncred.Turn{
		Agent: "a", Tenant: req.GetTenant(), Session: "s1", ID: req.GetTurnId(), Trace: req.GetTraceId(), Epoch: req.GetEpoch(),
		Step: int(req.GetStep()),
	}
	req.Credential, err = signer.Issue(turn, time.Time{})
	require.NoError(t, err)

	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure())
	require.Equal(t, "Done.", result.GetText())
	require.Len(t, outside.calls, 1)
	require.Empty(t, outside.calls[0].Get(turnctx.CredentialKey))
	stored := s.redis.Dump()
	require.Contains(t, stored, "note.txt")
	require.NotContains(t, stored, req.GetCredential())
	require.NotContains(t, stored, turnctx.CredentialKey)

	again := &troupev1.ReplayStepRequest{Step: req, Result: result}
	turn.Replay, turn.Epoch = true, 0
	req.Credential, err = signer.Issue(turn, time.Time{})
	require.NoError(t, err)
	done, err := r.steps.ReplayStep(t.Context(), again)
	require.NoError(t, err)
	require.Empty(t, done.GetReplay().GetSkipped())

	req = s.beginTurn(t, "a", "s2")
	_, result = readStep(t, r.execute(t.Context(), t, req))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_POLICY_SECURITY, result.GetFailure().GetMode(), "a call without a credential is rejected")
}
