package dispatch

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/audit/audittest"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/test/loopback"
)

// statusWorker is a worker that reports a fixed status.
type statusWorker struct {
	troupev1.UnimplementedLifecycleServiceServer
	status *troupev1.InstanceStatus
}

func (s *statusWorker) GetState(context.Context, *troupev1.GetStateRequest) (*troupev1.GetStateResponse, error) {
	return &troupev1.GetStateResponse{Status: s.status}, nil
}

// A worker must prove that it belongs to the agent that it registered for. Otherwise it gets no step, and the
// error says why. A connection that was verified for one agent is never used for another (guarantee S16).
func TestPool_WorkerMustProveItsAgent(t *testing.T) {
	dir := t.TempDir()
	open := func(role identity.Role, agent string) *identity.Source {
		s, err := identity.Open(identity.Config{DevCA: dir}, role, agent, zap.NewNop())
		require.NoError(t, err)
		return s
	}
	worker := func(self *identity.Source) string {
		server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true, Identity: self})
		require.NoError(t, err)
		troupev1.RegisterLifecycleServiceServer(server, &statusWorker{status: &troupev1.InstanceStatus{State: troupev1.InstanceState_INSTANCE_STATE_READY}})
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
		t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
		return lis.Addr().String()
	}
	honest, forged, plain := worker(open(identity.Worker, "a")), worker(open(identity.Worker, "b")), worker(nil)

	r := newDispatcherFixture(t, 0, instance("1", forged, 1))
	r.pool.UseIdentity(open(identity.Orchestrator, ""))
	log, entries := audittest.NewLog(t)
	r.telemetry.Audit = log
	for address, want := range map[string]failure.Mode{
		honest: "", forged: failure.PolicySecurity, plain: failure.PolicySecurity,
		loopback.Address(t): failure.SystemNetwork,
	} {
		in := registry.Instance{Agent: "a", ID: "1", Address: address}
		_, release, err := r.pool.Get(t.Context(), in)
		if want == "" {
			require.NoError(t, err)
			release()
			require.Equal(t, instances.Serving, r.pool.CheckHealth(t.Context(), in))
			continue
		}
		require.True(t, failure.Is(err, want), "%v", err)
		require.ErrorContains(t, err, "the worker at "+address)
		require.Equal(t, instances.Unreachable, r.pool.CheckHealth(t.Context(), in))
	}
	_, _, err := r.pool.Get(t.Context(), registry.Instance{Agent: "b", ID: "1", Address: honest})
	require.True(t, failure.Is(err, failure.PolicySecurity), "the connection there is of another agent: %v", err)
	require.ErrorContains(t, err, "the peer is spiffe://dev.troupe/worker/a, not spiffe://dev.troupe/worker/b")

	_, err = r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
	require.True(t, failure.Is(err, failure.NoWorker), "%v", err)
	require.ErrorContains(t, err, "the worker at "+forged+" does not prove to be one of agent a, as which it is registered")

	require.NotEmpty(t, r.pool.IdentityError(registry.Instance{Agent: "a", Address: forged}))
	require.Empty(t, r.pool.IdentityError(registry.Instance{Agent: "a", Address: honest}))
	said := map[string]int{}
	for _, e := range entries() {
		if e.Kind == audit.Denied {
			said[e.Actor+" "+e.Action]++
		}
	}
	require.Equal(t, map[string]int{
		"worker at " + forged + " be a worker of agent a": 1, "worker at " + plain + " be a worker of agent a": 1,
		"worker at " + honest + " be a worker of agent b": 1,
	}, said, "once each, however often it is asked")
	r.pool.CloseExcept(map[string]bool{honest: true})
	require.Empty(t, r.pool.IdentityError(registry.Instance{Agent: "a", Address: forged}), "it is not registered any more")
}
