package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// newTestServer starts a server with one identity and returns clients that connect with another.
func newTestServer(t testing.TB, tel *telemetry.Telemetry, as func(dir string) (server, client *identity.Source)) (troupev1.SessionServiceClient,
	healthpb.HealthClient,
) {
	t.Helper()
	self, other := as(t.TempDir())
	return serveAndConnectAs(t, tel, other, Config{Identity: self}, func(context.Context) {})
}

func serveAndConnectAs(t testing.TB, tel *telemetry.Telemetry, other *identity.Source, cfg Config, heard func(context.Context)) (troupev1.SessionServiceClient,
	healthpb.HealthClient,
) {
	t.Helper()
	server, err := NewServer(tel, cfg)
	require.NoError(t, err)
	troupev1.RegisterSessionServiceServer(server, &fakeSessions{get: func(ctx context.Context) (*troupev1.GetSessionResponse, error) {
		heard(ctx)
		return &troupev1.GetSessionResponse{}, nil
	}})
	conn := serveAndDial(t, server, other)
	return troupev1.NewSessionServiceClient(conn), healthpb.NewHealthClient(conn)
}

// serveAndDial starts a server and returns a connection to it.
func serveAndDial(t testing.TB, server *Server, other *identity.Source) *grpc.ClientConn {
	t.Helper()
	lis, err := Listen("--grpc-addr", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, time.Second).Run(ctx, func() {}) }()
	conn, err := DialWith(other.ClientCredentials(identity.Memory, ""), lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()); cancel(); require.NoError(t, <-done) })
	return conn
}

func openIdentity(t testing.TB, dir string, role identity.Role, agent string) *identity.Source {
	t.Helper()
	s, err := identity.Open(identity.Config{DevCA: dir}, role, agent, zap.NewNop())
	require.NoError(t, err)
	return s
}

func TestPermission_RejectsOtherRoles(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	sessions, health := newTestServer(t, telemetry.FromLogger(zap.New(core)), func(dir string) (*identity.Source, *identity.Source) {
		return openIdentity(t, dir, identity.Memory, ""), openIdentity(t, dir, identity.Worker, "a")
	})
	_, err := sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "no id"}) // the invalid request is not validated
	err = grpcfailure.FromStatus("test", err)
	require.True(t, failure.Is(err, failure.PolicySecurity), "%v", err)
	require.ErrorContains(t, err, "worker a may not call /troupe.v1.SessionService/GetSession, which is for client and admin alone")
	require.Equal(t, "spiffe://dev.troupe/worker/a", logs.FilterMessage("call rejected").All()[0].ContextMap()["caller"])
	_, err = health.Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err, "that is for everyone of the mesh")
}

func TestPermission_AllowsTheRole(t *testing.T) {
	sessions, _ := newTestServer(t, telemetry.Discard(), func(dir string) (*identity.Source, *identity.Source) {
		return openIdentity(t, dir, identity.Memory, ""), openIdentity(t, dir, identity.Admin, "ann")
	})
	_, err := sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
	require.NoError(t, err)
}

// The log names the client of a call, including clients that authenticate with a token.
func TestServer_LogsTheClient(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	client, _ := newServerWithTelemetry(t, telemetry.FromLogger(zap.New(core)), Config{Authenticate: trustClaimedIdentity},
		&fakeSessions{get: returnSession}, nil)
	_, err := client.GetSession(withIdentity(t, "shop"), &troupev1.GetSessionRequest{SessionId: "s"})
	require.NoError(t, err)
	_, err = client.GetSession(withIdentity(t, "shop"), &troupev1.GetSessionRequest{})
	require.Error(t, err)
	_, err = client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
	require.Error(t, err)
	for n, message := range []string{"call", "call rejected"} {
		said := logs.FilterMessage(message).All()[0].ContextMap()
		require.Equal(t, "client shop", said["caller"], n)
		require.Equal(t, "t", said["tenant"], n)
	}
	require.NotContains(t, logs.FilterMessage("call rejected").All()[1].ContextMap(), "caller", "the caller is unknown")
}

// The server closes a connection after some time, so that the client's certificate is verified again. No call
// fails because of it.
func TestServer_ClosesOldConnectionsWithoutFailingCalls(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{} // addresses of connections
	sessions, _ := serveAndConnectAs(t, telemetry.Discard(), openIdentity(t, dir, identity.Admin, "ann"), Config{
		Identity: openIdentity(t, dir, identity.Memory, ""), maxConnectionAge: 50 * time.Millisecond,
	}, func(ctx context.Context) {
		p, _ := peer.FromContext(ctx)
		seen[p.Addr.String()] = true
	})
	for len(seen) < 5 {
		_, err := sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
		require.NoError(t, err)
	}
}

// BenchmarkCall measures a small call in plain text and over mutual TLS.
func BenchmarkCall(b *testing.B) {
	for name, as := range map[string]func(string) (*identity.Source, *identity.Source){
		"plain": func(string) (*identity.Source, *identity.Source) { return nil, nil },
		"mutual": func(dir string) (*identity.Source, *identity.Source) {
			return openIdentity(b, dir, identity.Memory, ""), openIdentity(b, dir, identity.Admin, "ann")
		},
	} {
		b.Run(fmt.Sprintf("tls=%s", name), func(b *testing.B) {
			sessions, _ := newTestServer(b, telemetry.Discard(), as)
			for b.Loop() {
				if _, err := sessions.GetSession(b.Context(), &troupev1.GetSessionRequest{SessionId: "s"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A method that does not exist, or is missing from the permission table, is rejected like a method that the caller
// may not call (guarantee S2).
func TestPermission_RejectsMethodsMissingFromTheTable(t *testing.T) {
	dir := t.TempDir()
	server, err := NewServer(telemetry.Discard(), Config{Identity: openIdentity(t, dir, identity.Memory, "")})
	require.NoError(t, err)
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "troupe.v1.NewService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Do"}}},
		nil)
	lis, err := Listen("--grpc-addr", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = lis.Close() }()
	err = server.ProcessPart(lis, time.Second).Run(t.Context(), func() { t.Error("it is served") })
	require.ErrorContains(t, err, "troupe.v1.NewService/Do has no row")

	server, err = NewServer(telemetry.Discard(), Config{Identity: openIdentity(t, dir, identity.Memory, "")})
	require.NoError(t, err)
	conn := serveAndDial(t, server, openIdentity(t, dir, identity.Admin, "ann"))
	for _, method := range []string{"/troupe.v1.NewService/Do", "/troupe.v1.SessionService/GetSessions"} {
		err = conn.Invoke(t.Context(), method, &troupev1.GetSessionRequest{}, &troupev1.GetSessionResponse{})
		require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.PolicySecurity), "%s: %v", method, err)
	}
}
