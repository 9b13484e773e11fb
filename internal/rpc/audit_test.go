package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/audit/audittest"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// telemetryWithAudit returns telemetry with an audit log, and a function that closes the log and returns its
// entries.
func telemetryWithAudit(t *testing.T) (*telemetry.Telemetry, func() []audit.Entry) {
	t.Helper()
	log, entries := audittest.NewLog(t)
	tel := telemetry.Discard()
	tel.Audit = log
	return tel, entries
}

// Each call of an operator is recorded with its caller, object and result (guarantee S19).
func TestAudit_RecordsActorActionAndObject(t *testing.T) {
	tel, entries := telemetryWithAudit(t)
	call := func(method string, req any, answer func() error) {
		ctx := identity.WithPrincipal(t.Context(), identity.Principal{Role: identity.Admin, Name: "ada", Tenant: "acme"})
		defer func() { _ = recover() }() // the panic interceptor is not part of this test
		_, _ = auditInterceptor(tel.Audit, "research-1").unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any,
			error,
		) {
			return nil, answer()
		})
	}
	fine := func() error { return nil }
	call(troupev1.OrchestratorService_DrainInstance_FullMethodName, &troupev1.DrainInstanceRequest{
		InstanceId: "r-1", Agent: "research",
		Reason: "an update",
	}, fine)
	call(troupev1.SessionService_DeleteSession_FullMethodName, &troupev1.DeleteSessionRequest{SessionId: "s1"},
		func() error { return failure.New(failure.NotFound, "test", "no such session") })
	call(troupev1.LifecycleService_Pause_FullMethodName, &troupev1.PauseRequest{Reason: "a closer look"}, func() error { panic("oh") })
	call(troupev1.OrchestratorService_ListAgents_FullMethodName, &troupev1.ListAgentsRequest{}, fine) // not an audited method
	require.Equal(t, []audit.Entry{
		{
			Kind: audit.Admin, Actor: "admin ada", Action: "/troupe.v1.OrchestratorService/DrainInstance", Object: "r-1", Result: "ok",
			Facts: map[string]string{"tenant": "acme", "agent": "research", "reason": "an update"},
		},
		{
			Kind: audit.Admin, Actor: "admin ada", Action: "/troupe.v1.SessionService/DeleteSession", Object: "s1", Result: "not_found",
			Facts: map[string]string{"tenant": "acme"},
		},
		{
			Kind: audit.Lifecycle, Actor: "admin ada", Action: "/troupe.v1.LifecycleService/Pause", Object: "research-1", Result: "failed",
			Facts: map[string]string{"reason": "a closer look"},
		},
	}, entries())
}

// The audit log records each rejected call with the caller's address (guarantee S19), and each call of a barred caller
// (guarantee S18).
func TestPermission_AuditsRejectedCallers(t *testing.T) {
	tel, entries := telemetryWithAudit(t)
	dir, barred := t.TempDir(), failure.New(failure.PolicySecurity, "test", "out")
	cfg := Config{Identity: openIdentity(t, dir, identity.Memory, ""), CheckBarred: func(p identity.Principal, _ string) error {
		if p.Name == "eve" {
			return barred
		}
		return nil
	}}
	for _, caller := range []*identity.Source{
		openIdentity(t, dir, identity.Worker, "research"), openIdentity(t, dir, identity.Admin, "eve"),
		openIdentity(t, dir, identity.Admin, "ann"),
	} {
		sessions, _ := serveAndConnectAs(t, tel, caller, cfg, func(context.Context) {})
		_, _ = sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
	}
	all := entries()
	require.Len(t, all, 2)
	for i, actor := range []string{"worker research", "admin eve"} {
		require.Equal(t, audit.Denied, all[i].Kind)
		require.Equal(t, actor, all[i].Actor)
		require.Equal(t, troupev1.SessionService_GetSession_FullMethodName, all[i].Action)
		require.Equal(t, "policy_security", all[i].Result)
		require.Contains(t, all[i].Facts["peer"], "127.0.0.1:")
	}
}
