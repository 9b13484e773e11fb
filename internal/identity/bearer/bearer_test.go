package bearer_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/oidc"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeServer is an orchestrator at a client port. It records the principals of its callers.
type fakeServer struct {
	troupev1.UnimplementedSessionServiceServer
	troupev1.UnimplementedOrchestratorServiceServer
	lastServed        identity.Principal
	lastAuthenticated identity.Principal // principal of the last authenticated call, even if it was rejected
	addr              string
	logs              *observer.ObservedLogs
	conn              *grpc.ClientConn
}

func (f *fakeServer) GetSession(ctx context.Context, _ *troupev1.GetSessionRequest) (*troupev1.GetSessionResponse, error) {
	f.lastServed = identity.PrincipalFromContext(ctx)
	return &troupev1.GetSessionResponse{}, nil
}

func (f *fakeServer) WatchTrace(_ *troupev1.WatchTraceRequest, stream troupev1.OrchestratorService_WatchTraceServer) error {
	f.lastServed = identity.PrincipalFromContext(stream.Context())
	return nil
}

func (f *fakeServer) PauseAgent(ctx context.Context, _ *troupev1.PauseAgentRequest) (*troupev1.PauseAgentResponse, error) {
	f.lastServed = identity.PrincipalFromContext(ctx)
	return &troupev1.PauseAgentResponse{}, nil
}

func startServer(t *testing.T, cfg bearer.Config) *fakeServer {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	clients, err := bearer.Open(cfg, zap.New(core))
	require.NoError(t, err)
	p := &fakeServer{logs: logs}
	server, err := rpc.NewServer(telemetry.FromLogger(zap.New(core)), rpc.Config{
		Authenticate: clients.Authenticate,
		CheckBarred: func(who identity.Principal, _ string) error {
			p.lastAuthenticated = who
			return nil
		},
	})
	require.NoError(t, err)
	troupev1.RegisterSessionServiceServer(server, p)
	troupev1.RegisterOrchestratorServiceServer(server, p)
	lis, err := rpc.Listen("--grpc-addr", "127.0.0.1:0", cfg.CheckAddress)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, time.Second).Run(ctx, func() {}) }()
	p.addr = lis.Addr().String()
	p.conn, err = rpc.Dial(p.addr, telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.conn.Close()); cancel(); require.NoError(t, <-done) })
	return p
}

// callGetSession calls GetSession with the given metadata.
func (f *fakeServer) callGetSession(ctx context.Context, said ...string) error {
	_, err := troupev1.NewSessionServiceClient(f.conn).GetSession(metadata.AppendToOutgoingContext(ctx, said...), &troupev1.GetSessionRequest{SessionId: "s"})
	return grpcfailure.FromStatus("test", err)
}

// writeTokens writes a token file with a client and an admin, and returns the file and both tokens.
func writeTokens(t *testing.T) (file, ann, root string) {
	t.Helper()
	a, entryA := token.New(token.Entry{Name: "ann", Tenant: "acme", Role: identity.Client})
	r, entryR := token.New(token.Entry{Name: "root", Tenant: "default", Role: identity.Admin})
	text, err := token.FormatFile(entryA, entryR)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file, a.Reveal(), r.Reveal()
}

func TestAuthenticator_ReturnsThePrincipalOfTheToken(t *testing.T) {
	file, ann, root := writeTokens(t)
	p := startServer(t, bearer.Config{Tokens: file})
	require.NoError(t, p.callGetSession(t.Context(), "authorization", "Bearer "+ann, "troupe-tenant", "umbrella"))
	require.Equal(t, identity.Principal{Role: identity.Client, Name: "ann", Tenant: "acme"}, p.lastServed, "other metadata does not count")
	require.NoError(t, p.callGetSession(t.Context(), "authorization", "bearer  "+root))
	require.Equal(t, identity.Principal{Role: identity.Admin, Name: "root", Tenant: "default"}, p.lastServed)

	// A client may not call methods that are for operators.
	for text, allowed := range map[string]bool{ann: false, root: true} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+text)
		_, err := troupev1.NewOrchestratorServiceClient(p.conn).PauseAgent(ctx, &troupev1.PauseAgentRequest{Agent: "a"})
		if allowed {
			require.NoError(t, err)
			continue
		}
		require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.PolicySecurity), "%v", err)
		require.ErrorContains(t, err, "client ann may not call")
	}
}

func TestAuthenticator_RejectsUnauthenticatedCalls(t *testing.T) {
	file, ann, _ := writeTokens(t)
	p := startServer(t, bearer.Config{Tokens: file})
	for name, c := range map[string]struct {
		said []string
		says string
	}{
		"none":      {nil, "a token is needed; send one as `authorization: Bearer TOKEN`"},
		"empty":     {[]string{"authorization", ""}, "must be `Bearer TOKEN`"},
		"no scheme": {[]string{"authorization", ann}, "must be `Bearer TOKEN`"},
		"basic":     {[]string{"authorization", "Basic " + ann}, "must be `Bearer TOKEN`"},
		"two":       {[]string{"authorization", "Bearer " + ann, "authorization", "Bearer " + ann}, "more than one authorization"},
		"unknown":   {[]string{"authorization", "Bearer " + ann + "x"}, "this token is unknown"},
		"of others": {[]string{"authorization", "Bearer a.b.c"}, "this token is unknown"},
	} {
		err := p.callGetSession(t.Context(), c.said...)
		require.True(t, failure.Is(err, failure.UserUnauthenticated), "%s: %v", name, err)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, fmt.Sprintf("%+v", err), strings.TrimPrefix(ann, "tr_"), name)
		stream, err := troupev1.NewOrchestratorServiceClient(p.conn).WatchTrace(metadata.AppendToOutgoingContext(t.Context(), c.said...),
			&troupev1.WatchTraceRequest{TraceId: strings.Repeat("a", 32)})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.UserUnauthenticated), "%s: %v", name, err)
	}
	require.Zero(t, p.lastServed)
	for _, line := range p.logs.All() {
		require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), strings.TrimPrefix(ann, "tr_"))
	}
	health := healthpb.NewHealthClient(p.conn)
	_, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err, "load balancers check the health without a token")
	require.Equal(t, identity.Principal{Role: identity.Anybody, Tenant: "default"}, p.lastAuthenticated, "its calls are counted by its address")
	_, err = health.List(t.Context(), &healthpb.HealthListRequest{})
	require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.UserUnauthenticated), "%v", err)
}

// Even without authentication, a call cannot choose its tenant.
func TestAuthenticator_AcceptsAnybodyWithoutConfiguration(t *testing.T) {
	p := startServer(t, bearer.Config{})
	require.NoError(t, p.callGetSession(t.Context(), "troupe-tenant", "umbrella"))
	require.Equal(t, identity.Principal{Role: identity.Anybody, Tenant: "default"}, p.lastServed)
}

func TestConfig_RejectsAnOpenPort(t *testing.T) {
	all, loop := &net.TCPAddr{IP: net.IPv4zero, Port: 7400}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7400}
	issuer := oidc.Config{Issuer: "https://login.example.org", Audience: "troupe"}
	require.ErrorContains(t, bearer.Config{}.CheckAddress("--grpc-addr", all),
		"--grpc-addr: other machines reach 0.0.0.0:7400 and could call everything there without authentication; give --client-tokens or --oidc-issuer")
	require.NoError(t, bearer.Config{}.CheckAddress("--grpc-addr", loop))
	for _, cfg := range []bearer.Config{{Anonymous: true}, {Tokens: "file"}, {OIDC: issuer}} {
		require.NoError(t, cfg.CheckAddress("--grpc-addr", all))
		require.NoError(t, cfg.Check())
	}
	require.ErrorContains(t, bearer.Config{Anonymous: true, OIDC: issuer}.Check(), "no caller is anonymous")
	require.ErrorContains(t, bearer.Config{OIDC: oidc.Config{Issuer: "login"}}.Check(), "--oidc-issuer")
}

func TestToken_IsSentWithEachCall(t *testing.T) {
	file, ann, root := writeTokens(t)
	p := startServer(t, bearer.Config{Tokens: file})
	mine := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(mine, []byte(ann+"\n"), 0o600))
	as, err := bearer.TokenConfig{File: mine}.Credentials(p.addr, false)
	require.NoError(t, err)
	c := client.New(client.WithCredentials(p.conn, as))
	_, err = c.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
	require.NoError(t, err)
	require.Equal(t, "ann", p.lastServed.Name)
	require.NoError(t, os.WriteFile(mine, []byte(root), 0o600))
	stream, err := c.WatchTrace(t.Context(), &troupev1.WatchTraceRequest{TraceId: strings.Repeat("a", 32)})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.ErrorContains(t, err, "EOF")
	require.Equal(t, "root", p.lastServed.Name, "the file is read again")

	t.Setenv("TROUPE_TOKEN", ann)
	as, err = bearer.TokenConfig{}.Credentials(p.addr, false)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%+v", as), ann)
	_, err = client.New(client.WithCredentials(p.conn, as)).Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
	require.NoError(t, err)
	require.Equal(t, "ann", p.lastServed.Name)
}

func TestToken_RequiresTLSBeyondLoopback(t *testing.T) {
	t.Setenv("TROUPE_TOKEN", "tr_secret")
	for addr, ok := range map[string]bool{
		"127.0.0.1:7400": true, "localhost:7400": true, "[::1]:7400": true, "127.1.2.3:1": true,
		"mesh.example.org:7400": false, "10.0.0.1:7400": false, "localhost.example.org:7400": false, "dns:///127.0.0.1:7400": false, "[::]:7400": false,
	} {
		_, err := bearer.TokenConfig{}.Credentials(addr, false)
		require.Equal(t, ok, err == nil, "%s: %v", addr, err)
		if err != nil {
			require.ErrorContains(t, err, "others could read the token")
			require.NotContains(t, err.Error(), "tr_secret")
		}
		_, err = bearer.TokenConfig{}.Credentials(addr, true)
		require.NoError(t, err)
	}
	t.Setenv("TROUPE_TOKEN", "two tokens")
	_, err := bearer.TokenConfig{}.Credentials("127.0.0.1:7400", false)
	require.EqualError(t, err, "TROUPE_TOKEN: it must hold one token, and nothing else")
	t.Setenv("TROUPE_TOKEN", "")
	none, err := bearer.TokenConfig{}.Credentials("10.0.0.1:7400", false)
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = bearer.TokenConfig{File: filepath.Join(t.TempDir(), "absent")}.Credentials("127.0.0.1:7400", false)
	require.ErrorContains(t, err, "--token-file: ")
}
