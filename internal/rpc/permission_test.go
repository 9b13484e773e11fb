package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// invokeMethod calls a method by its full name, with the given metadata.
func invokeMethod(t *testing.T, conn *grpc.ClientConn, method string, said ...string) error {
	t.Helper()
	err := conn.Invoke(metadata.AppendToOutgoingContext(t.Context(), said...), method, &troupev1.CommitStepRequest{}, &troupev1.CommitStepResponse{})
	return grpcfailure.FromStatus("test", err)
}

// Rejected calls count against the rate limit like allowed ones, so that a caller can flood neither the log nor
// the counter (guarantees S10, S19).
func TestPermission_RateLimitsRejectedCalls(t *testing.T) {
	const limit = 3
	tel, entries := telemetryWithAudit(t)
	server, err := NewServer(tel, Config{Authenticate: trustClaimedIdentity, Rates: rate.New(rate.Table{
		rate.Operations: {Rate: 0.001, Burst: limit}, rate.Turns: {Rate: 0.001, Burst: limit},
	})})
	require.NoError(t, err)
	conn := serveAndDial(t, server, nil)
	for _, caller := range []string{"a", "b"} {
		for _, methods := range [][]string{
			{troupev1.MemoryService_CommitStep_FullMethodName, troupev1.OrchestratorService_PauseAgent_FullMethodName, "/troupe.v1.NewService/Do"},
			{troupev1.OrchestratorService_ReplayTrace_FullMethodName},
		} {
			for n := range 2 * limit {
				want := failure.PolicySecurity
				if n >= limit {
					want = failure.PolicyRateLimit
				}
				err := invokeMethod(t, conn, methods[n%len(methods)], "name", caller)
				require.True(t, failure.Is(err, want), "%s %d: %v", caller, n, err)
			}
		}
	}
	denied := 0
	for _, e := range entries() {
		if e.Kind == audit.Denied {
			denied++
		}
	}
	require.Equal(t, 4*limit, denied)
}

// A call of a barred caller is rejected, but it is not an ownership violation.
func TestPermission_BarredCallIsNoOwnershipViolation(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	tel, entries := telemetryWithAudit(t)
	tel.Metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	dir := t.TempDir()
	server, err := NewServer(tel, Config{Identity: openIdentity(t, dir, identity.Memory, ""), CheckBarred: func(identity.Principal, string) error {
		return failure.New(failure.PolicySecurity, "test", "out")
	}})
	require.NoError(t, err)
	conn := serveAndDial(t, server, openIdentity(t, dir, identity.Worker, "a"))
	require.ErrorContains(t, invokeMethod(t, conn, troupev1.MemoryService_CommitStep_FullMethodName), "out")
	require.Empty(t, countViolations(t, reader))
	require.ErrorContains(t, invokeMethod(t, conn, troupev1.MemoryService_BeginTurn_FullMethodName), "worker a may not call")
	require.Equal(t, map[[2]string]int64{{"memory", "worker"}: 1}, countViolations(t, reader), "this is a violation, whether the caller is barred or not")
	kinds := map[audit.Kind]int{}
	for _, e := range entries() {
		kinds[e.Kind]++
	}
	require.Equal(t, map[audit.Kind]int{audit.Denied: 2, audit.Violation: 1}, kinds)
}

// When the scope check rejects a request, the audit log records its object and the caller's address (guarantee
// S19).
func TestScope_AuditsRejectedRequests(t *testing.T) {
	tel, entries := telemetryWithAudit(t)
	dir := t.TempDir()
	sessions, _ := serveAndConnectAs(t, tel, openIdentity(t, dir, identity.Admin, "ann"), Config{
		Identity: openIdentity(t, dir, identity.Memory, ""),
		Scope: func(ctx context.Context, _ string, _ any) (context.Context, error) {
			return ctx, failure.New(failure.NotFound, "test", "no such session")
		},
	}, func(context.Context) {})
	_, err := sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "bobs"})
	require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.NotFound), "%v", err)
	all := entries()
	require.Len(t, all, 1)
	require.Contains(t, all[0].Facts["peer"], "127.0.0.1:")
	delete(all[0].Facts, "peer")
	require.Equal(t, audit.Entry{
		Kind: audit.Denied, Actor: "admin ann", Action: troupev1.SessionService_GetSession_FullMethodName, Object: "bobs", Result: "not_found",
		Facts: map[string]string{"tenant": "default"},
	}, all[0])
}

// An invalid tenant name is rejected and not replaced by the default tenant.
func TestPrincipalFromCertificate_RejectsInvalidTenants(t *testing.T) {
	var tenant string
	dir := t.TempDir()
	server, err := NewServer(telemetry.Discard(), Config{Identity: openIdentity(t, dir, identity.Memory, ""), Scope: func(ctx context.Context, _ string,
		_ any,
	) (context.Context, error) {
		tenant = identity.PrincipalFromContext(ctx).Tenant
		return ctx, nil
	}})
	require.NoError(t, err)
	troupev1.RegisterMemoryServiceServer(server, troupev1.UnimplementedMemoryServiceServer{})
	conn := serveAndDial(t, server, openIdentity(t, dir, identity.Orchestrator, ""))
	get := func(said ...string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), said...)
		_, err := troupev1.NewMemoryServiceClient(conn).GetSession(ctx, &troupev1.MemoryServiceGetSessionRequest{SessionId: "s"})
		return grpcfailure.FromStatus("test", err)
	}
	for want, said := range map[string][]string{"default": nil, "acme": {tenantMetadataKey, "acme"}} {
		require.True(t, failure.Is(get(said...), failure.AgentContract), "the call reaches the handler")
		require.Equal(t, want, tenant)
	}
	tenant = ""
	for _, said := range [][]string{{tenantMetadataKey, ""}, {tenantMetadataKey, "a/b"}, {tenantMetadataKey, "a", tenantMetadataKey, "b"}} {
		err := get(said...)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%q: %v", said, err)
		require.ErrorContains(t, err, tenantMetadataKey)
	}
	require.Empty(t, tenant)
}
