package rpc

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSessions is a SessionService whose behavior the test chooses.
type fakeSessions struct {
	troupev1.UnimplementedSessionServiceServer
	get func(context.Context) (*troupev1.GetSessionResponse, error)
}

func (s *fakeSessions) GetSession(ctx context.Context, _ *troupev1.GetSessionRequest) (*troupev1.GetSessionResponse, error) {
	return s.get(ctx)
}

func (s *fakeSessions) GetArtifact(_ *troupev1.GetArtifactRequest, stream troupev1.SessionService_GetArtifactServer) error {
	_, err := s.get(stream.Context())
	return err
}

type testServer struct {
	client troupev1.SessionServiceClient
	health healthpb.HealthClient
	conn   *grpc.ClientConn
	server *Server
	logs   *observer.ObservedLogs
	stop   func() error
}

func startTestServer(t *testing.T, drain time.Duration, get func(context.Context) (*troupev1.GetSessionResponse, error)) *testServer {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	tel := telemetry.FromLogger(zap.New(core))
	server, err := NewServer(tel, Config{})
	require.NoError(t, err)
	troupev1.RegisterSessionServiceServer(server, &fakeSessions{get: get})
	lis, err := Listen("--grpc-addr", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // the server outlives the test's context, to be stopped in cleanup
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, drain).Run(ctx, func() {}) }()
	conn, err := Dial(lis.Addr().String(), tel)
	require.NoError(t, err)
	stopped := false
	b := &testServer{troupev1.NewSessionServiceClient(conn), healthpb.NewHealthClient(conn), conn, server, logs, func() error {
		cancel()
		stopped = true
		return <-done
	}}
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		if !stopped {
			require.NoError(t, b.stop())
		}
	})
	return b
}

func (s *testServer) getSession(t *testing.T, id string) error {
	t.Helper()
	_, err := s.client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: id})
	return grpcfailure.FromStatus("test", err)
}

func TestServer_RejectsInvalidRequestsAndNamesTheField(t *testing.T) {
	called := false
	b := startTestServer(t, time.Second, func(context.Context) (*troupev1.GetSessionResponse, error) { called = true; return nil, nil })
	err := b.getSession(t, "a b")
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	require.ErrorContains(t, err, "session_id")
	require.ErrorContains(t, err, "{1,64}")
	require.False(t, called)
}

func TestServer_HidesPanicsAndKeepsServing(t *testing.T) {
	b := startTestServer(t, time.Second, func(context.Context) (*troupev1.GetSessionResponse, error) { panic("secret") })
	for range 2 {
		err := b.getSession(t, "s")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
	require.Contains(t, b.logs.FilterMessage("call failed").All()[0].ContextMap()["error"], "secret")
}

func TestServer_SendsTheModeAndLogsTheCause(t *testing.T) {
	b := startTestServer(t, time.Second, func(context.Context) (*troupev1.GetSessionResponse, error) {
		return nil, failure.New(failure.NotFound, "memory.GetSession", "no such session").Because(context.Canceled)
	})
	err := b.getSession(t, "s")
	require.True(t, failure.Is(err, failure.NotFound))
	require.EqualError(t, err, "memory.GetSession: not_found: no such session")
	require.Contains(t, b.logs.All()[0].ContextMap()["error"], "context canceled")
}

func TestServer_RejectsOversizedMessagesAndHeaders(t *testing.T) {
	b := startTestServer(t, time.Second, func(context.Context) (*troupev1.GetSessionResponse, error) {
		return &troupev1.GetSessionResponse{}, nil
	})
	require.True(t, failure.Is(b.getSession(t, strings.Repeat("x", MaxMessageBytes+1)), failure.ResourceQuota))
}

func TestServer_StopsInBoundedTime(t *testing.T) {
	entered, released := make(chan struct{}), make(chan struct{})
	b := startTestServer(t, 50*time.Millisecond, func(ctx context.Context) (*troupev1.GetSessionResponse, error) {
		close(entered)
		<-ctx.Done() // only the forced stop ends this context
		close(released)
		return nil, ctx.Err()
	})
	watch, err := b.health.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	call := make(chan error)
	go func() { call <- b.getSession(t, "s") }()
	<-entered
	require.NoError(t, b.stop())
	<-released
	require.Error(t, <-call)
}

func TestServer_HealthWatchDoesNotDelayAStop(t *testing.T) {
	b := startTestServer(t, time.Hour, nil)
	watch, err := b.health.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, first.GetStatus())
	b.server.SetServing(true)
	second, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, second.GetStatus())
	require.NoError(t, b.stop())
}

func TestListen_ErrorNamesTheFlagAndSaysWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	_, err = Listen("--grpc-addr", taken.Addr().String())
	require.ErrorContains(t, err, "--grpc-addr: cannot listen on "+taken.Addr().String())
	require.ErrorContains(t, err, "127.0.0.1:0")
}

func TestCheckTarget_RejectsInvalidTargets(t *testing.T) {
	for _, right := range []string{"memory:7401", "127.0.0.1:7401", "[::1]:7401", "dns:///memory:7401", "unix:/run/memory", "passthrough:///x"} {
		require.NoError(t, CheckTarget(right))
	}
	for _, wrong := range []string{"", "foo", ":7401", "foo:", "dns:", "::1", "http://memory"} {
		require.ErrorContains(t, CheckTarget(wrong), "is not host:port", wrong)
	}
}

func TestCheckServing_ChecksTheNamedService(t *testing.T) {
	b := startTestServer(t, time.Second, nil)
	ours := CheckServing(b.conn, troupev1.SessionService_ServiceDesc.ServiceName)
	b.server.SetServing(false)
	require.EqualError(t, ours(t.Context()), "is not ready: NOT_SERVING")
	b.server.SetServing(true)
	require.NoError(t, ours(t.Context()))
	require.Error(t, CheckServing(b.conn, troupev1.OrchestratorService_ServiceDesc.ServiceName)(t.Context()), "another service serves at this address")
}

func TestChain_EveryInterceptorHandlesUnaryAndStreamingCalls(t *testing.T) {
	chain, draining, err := newChain(telemetry.Discard(), Config{Identity: &identity.Source{}})
	require.NoError(t, err)
	defer draining()
	for _, l := range chain {
		require.NotNil(t, l.unary, l.name)
		require.NotNil(t, l.stream, l.name)
	}
}
