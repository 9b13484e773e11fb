package authz_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/troupe-dev/troupe/internal/authz"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var update = flag.Bool("update", false, "write docs/authz.md anew")

const pagePath = "../../docs/authz.md"

// Each of ten callers calls each method over real connections. The results match the table and the documentation
// page. A rejected caller learns only that it may not make the call.
func TestMatrix_MatchesTableAndDocs(t *testing.T) {
	callers := newCallers(t)
	var table strings.Builder
	for _, method := range authz.Methods() {
		service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
		fmt.Fprintf(&table, "| %s | %s |", service[strings.LastIndex(service, ".")+1:], name)
		roles, _ := authz.RolesFor(method)
		for _, c := range callers {
			got := c.call(t, method)
			want := c.fixedResult
			if c.canProbe && method == healthpb.Health_Check_FullMethodName {
				want = resultServed
			} else if want == "" && !slices.Contains(roles, c.role) {
				want = resultDenied
			}
			require.Equal(t, want, got, "%s calls %s", c.name, method)
			table.WriteString(" " + resultMarks[got] + " |")
		}
		table.WriteString("\n")
	}
	written := pageIntroduction(callers) + table.String()
	if *update {
		require.NoError(t, os.WriteFile(pagePath, []byte(written), 0o600))
	}
	had, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	require.Equal(t, string(had), written, "make authz writes docs/authz.md anew")
}

// These are the possible results of a call.
const (
	resultServed      = ""            // the call reached the handler
	resultDenied      = "denied"      // PERMISSION_DENIED
	resultUnknown     = "unknown"     // UNAUTHENTICATED
	resultUnconnected = "unconnected" // the handshake failed
)

var resultMarks = map[string]string{resultServed: "✔", resultDenied: "·", resultUnknown: "?", resultUnconnected: "x"}

func pageIntroduction(callers []caller) string {
	names, lines := "", ""
	for _, c := range callers {
		names, lines = names+" "+c.name+" |", lines+"---|"
	}
	return `# Who may call what?

Written by ` + "`make authz`" + `, which calls each method as each of these callers, over real connections.
✔: the call is served. ·: PERMISSION_DENIED. ?: UNAUTHENTICATED. x: there is no connection.

A worker's calls of the memory service and the orchestrator need the credential of a turn, and touch that turn
only. For GetConfig and PutConfig its certificate is enough. Clients and admins touch objects of their own tenant; all
others are NOT_FOUND.
Reflection is served where it is configured. A method that is not listed is rejected for every caller.

| Service | Method |` + names + "\n|---|---|" + lines + "\n"
}

// caller is one of the ten callers of the test, with its connection and credentials.
type caller struct {
	name        string
	role        identity.Role
	fixedResult string // result of every call (empty if the table decides)
	canProbe    bool   // whether it may still check the health of the server, as load balancers do
	conn        *grpc.ClientConn
	token       string
}

// call calls a method with an empty message and returns the result.
func (c caller) call(t *testing.T, method string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err == nil {
		_ = stream.SendMsg(&emptypb.Empty{}) // RecvMsg returns the result
		_ = stream.CloseSend()
		err = stream.RecvMsg(&emptypb.Empty{})
	}
	if err == nil {
		return resultServed
	}
	switch mode := failure.ModeOf(grpcfailure.FromStatus("test", err)); mode {
	case failure.AgentContract, failure.UserInvalidInput: // the call passed authentication and authorization
		return resultServed
	case failure.PolicySecurity:
		return resultDenied
	case failure.UserUnauthenticated:
		return resultUnknown
	case failure.SystemNetwork:
		return resultUnconnected
	default:
		require.FailNow(t, "unexpected answer", "%s calls %s: %s %v", c.name, method, mode, err)
		return ""
	}
}

// newCallers returns the ten callers. Some are connected to a port inside the mesh, others to the port for
// clients.
func newCallers(t *testing.T) []caller {
	mesh, foreign := t.TempDir(), t.TempDir()
	open := func(dir string, role identity.Role, name string) *identity.Source {
		source, err := identity.Open(identity.Config{DevCA: dir}, role, name, zap.NewNop())
		require.NoError(t, err)
		return source
	}
	inner := startServer(t, rpc.Config{Internal: true, Reflection: true, Identity: open(mesh, identity.Memory, "")})
	tokens, admin, client := writeTokens(t)
	known, err := bearer.Open(bearer.Config{Tokens: tokens}, zap.NewNop())
	require.NoError(t, err)
	edge := startServer(t, rpc.Config{Reflection: true, Authenticate: known.Authenticate})
	dial := func(to string, creds credentials.TransportCredentials) *grpc.ClientConn {
		conn, err := rpc.DialWith(creds, to, telemetry.Discard())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		return conn
	}
	as := func(dir string, role identity.Role, name string) *grpc.ClientConn {
		return dial(inner, open(dir, role, name).ClientCredentials(identity.Memory, ""))
	}
	clients := dial(edge, insecure.NewCredentials())
	return []caller{
		{name: "orchestrator", role: identity.Orchestrator, conn: as(mesh, identity.Orchestrator, "")},
		{name: "memory", role: identity.Memory, conn: as(mesh, identity.Memory, "")},
		{name: "worker", role: identity.Worker, conn: as(mesh, identity.Worker, "a")},
		{name: "admin, certificate", role: identity.Admin, conn: as(mesh, identity.Admin, "ann")},
		{name: "admin, token", role: identity.Admin, conn: clients, token: admin},
		{name: "client", role: identity.Client, conn: clients, token: client},
		{name: "wrong token", fixedResult: resultUnknown, conn: clients, token: "nonsense"},
		{name: "no token", fixedResult: resultUnknown, canProbe: true, conn: clients},
		{name: "other CA", fixedResult: resultUnconnected, conn: as(foreign, identity.Orchestrator, "")},
		{name: "plain text", fixedResult: resultUnconnected, conn: dial(inner, insecure.NewCredentials())},
	}
}

// writeTokens writes a token file with the tokens of an admin and a client, and returns the file and both tokens.
func writeTokens(t *testing.T) (file, admin, client string) {
	t.Helper()
	a, ann := token.New(token.Entry{Name: "ann", Tenant: "t", Role: identity.Admin})
	c, shop := token.New(token.Entry{Name: "shop", Tenant: "t", Role: identity.Client})
	text, err := token.FormatFile(ann, shop)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file, a.Reveal(), c.Reveal()
}

// startServer runs a server that implements no method, so an authorized call ends with Unimplemented.
func startServer(t *testing.T, cfg rpc.Config) (address string) {
	server, err := rpc.NewServer(telemetry.Discard(), cfg)
	require.NoError(t, err)
	troupev1.RegisterOrchestratorServiceServer(server, troupev1.UnimplementedOrchestratorServiceServer{})
	troupev1.RegisterSessionServiceServer(server, troupev1.UnimplementedSessionServiceServer{})
	troupev1.RegisterMemoryServiceServer(server, troupev1.UnimplementedMemoryServiceServer{})
	troupev1.RegisterLifecycleServiceServer(server, troupev1.UnimplementedLifecycleServiceServer{})
	troupev1.RegisterAgentServiceServer(server, troupev1.UnimplementedAgentServiceServer{})
	troupev1.RegisterConformanceServiceServer(server, troupev1.UnimplementedConformanceServiceServer{})
	for _, method := range authz.Methods() { // otherwise a call would fail as unknown instead of being authorized
		service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
		require.True(t, slices.ContainsFunc(server.GetServiceInfo()[service].Methods, func(m grpc.MethodInfo) bool { return m.Name == name }), method)
	}
	lis, err := rpc.Listen("--grpc-addr", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, time.Second).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return lis.Addr().String()
}
