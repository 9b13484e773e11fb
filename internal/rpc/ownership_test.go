package rpc

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// countViolations returns the number of violations so far, by owner and actor.
func countViolations(t *testing.T, reader sdkmetric.Reader) map[[2]string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	found := map[[2]string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "troupe.ownership.violations" {
				continue
			}
			sum, ok := m.Data.(metricdata.Sum[int64])
			require.True(t, ok)
			for _, p := range sum.DataPoints {
				require.Equal(t, 2, p.Attributes.Len(), "the number of keys is unlimited")
				owner, _ := p.Attributes.Value("owner")
				actor, _ := p.Attributes.Value("actor")
				found[[2]string{owner.AsString(), actor.AsString()}] = p.Value
			}
		}
	}
	return found
}

// The recorded actor is the authenticated caller, not a name from the request or the handler.
// Req: SO-7, SO-12
func TestOwnership_RecordsTheProvenCallerAsActor(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	tel := telemetry.Discard()
	tel.Metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	violations, err := tel.Violations()
	require.NoError(t, err)
	ctx := identity.WithPrincipal(t.Context(), identity.Principal{Role: identity.Worker, Name: "a", Tenant: "default"})

	handler := func(context.Context, any) (any, error) {
		return nil, ownership.NewViolationError("memory.UpdateState", "trace_id", ownership.Orchestrator, "another")
	}
	_, err = ownershipInterceptor(violations).unary(ctx, nil, &grpc.UnaryServerInfo{}, handler)
	require.True(t, failure.Is(err, failure.StateViolation))
	require.ErrorContains(t, err, `state "trace_id" is owned by orchestrator, but worker a attempted to modify it`)

	other := failure.New(failure.NotFound, "test", "no")
	_, err = ownershipInterceptor(violations).unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, other })
	require.Equal(t, other, err)

	caller := identity.Principal{Role: identity.Orchestrator}
	denied := failure.New(failure.PolicySecurity, "call", "not yours")
	err = recordDeniedWrite(ctx, violations, caller, troupev1.MemoryService_CommitStep_FullMethodName, denied)
	require.True(t, failure.Is(err, failure.PolicySecurity))
	e, ok := errors.AsType[*failure.Error](err)
	require.True(t, ok)
	require.Equal(t, map[string]string{"key": "history", "owner": "memory", "actor": "orchestrator"}, e.Facts)
	require.Equal(t, denied, recordDeniedWrite(ctx, violations, caller, troupev1.MemoryService_LoadHistory_FullMethodName, denied), "it writes nothing")
	require.Equal(t, map[[2]string]int64{{"orchestrator", "worker"}: 1, {"memory", "orchestrator"}: 1}, countViolations(t, reader))
}

// A worker that writes to a session of another turn violates the ownership of that session. The worker only learns
// that no such session exists; the audit log contains the violation.
// Req: SO-8
func TestScope_WriteToAForeignSessionIsAViolation(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	tel, entries := telemetryWithAudit(t)
	tel.Metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	violations, err := tel.Violations()
	require.NoError(t, err)
	caller := identity.Principal{Role: identity.Worker, Name: "a", Tenant: "default"}
	ctx := identity.WithPrincipal(t.Context(), caller)
	commit, load := troupev1.MemoryService_CommitStep_FullMethodName, troupev1.MemoryService_LoadHistory_FullMethodName
	recorded := int64(0)
	for _, c := range []struct {
		method   string
		mode     failure.Mode
		tells    bool
		violates int64
	}{
		{commit, failure.NotFound, false, 1},
		{commit, failure.PolicySecurity, true, 1},
		{commit, failure.Fenced, false, 0}, // a late write
		{load, failure.NotFound, false, 0},
		{load, failure.PolicySecurity, false, 0},
	} {
		rejection := failure.New(c.mode, "memory", "no")
		link := scopeInterceptor(func(context.Context, string, any) (context.Context, error) { return nil, rejection }, tel.Audit, violations)
		_, err := link.unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: c.method}, nil)
		e, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok)
		require.Equal(t, c.mode, e.Mode)
		require.Equal(t, c.tells, e.IsViolation(), "%s %s", c.method, c.mode)
		recorded += c.violates
		require.Equal(t, recorded, countViolations(t, reader)[[2]string{"memory", "worker"}], "%s %s", c.method, c.mode)
	}
	kinds := map[audit.Kind]int{}
	for _, e := range entries() {
		kinds[e.Kind]++
	}
	require.Equal(t, map[audit.Kind]int{audit.Denied: 5, audit.Violation: 2}, kinds)
}
