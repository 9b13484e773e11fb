package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/redistest"
)

// The memory service rejects calls of workers of a quarantined agent, even while etcd is unreachable, and serves
// other agents (guarantee S18). Such a worker may still read its configuration and check the health of the
// service. Otherwise it could not start.
func TestApp_RejectsWorkersOfQuarantinedAgents(t *testing.T) {
	etcd, dir := etcdtest.Start(t), t.TempDir()
	r := runApp(t, "redis://"+redistest.Start(t), func(cfg *Config) {
		cfg.Etcd, cfg.Identity = etcd.Endpoints(), identity.Config{DevCA: dir}
	})
	conns := map[string]*grpc.ClientConn{}
	caller := func(agent string) troupev1.MemoryServiceClient {
		self, err := identity.Open(identity.Config{DevCA: dir}, identity.Worker, agent, zap.NewNop())
		require.NoError(t, err)
		conn, err := rpc.DialWith(self.ClientCredentials(identity.Memory, ""), r.GRPCAddr(), telemetry.Discard())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		conns[agent] = conn
		return troupev1.NewMemoryServiceClient(conn)
	}
	<-r.ready
	evil, good := caller("research"), caller("synthesis")
	mode := func(m troupev1.MemoryServiceClient) failure.Mode {
		_, err := m.GetSession(t.Context(), &troupev1.MemoryServiceGetSessionRequest{SessionId: "s"})
		return failure.ModeOf(grpcfailure.FromStatus("test", err))
	}
	allowed := mode(good)
	require.Equal(t, allowed, mode(evil))
	operators := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{})
	d := registry.DesiredState{Key: registry.AgentKey("research"), Kind: registry.Quarantine, Reason: "it misbehaves", Since: time.Now()}
	require.NoError(t, operators.SetDesired(t.Context(), d))
	turns := func(want failure.Mode) {
		require.Eventually(t, func() bool { return mode(evil) == want }, 20*time.Second, 5*time.Millisecond)
	}
	turns(failure.PolicySecurity)
	said := func(message string) []observer.LoggedEntry {
		var lines []observer.LoggedEntry // the log line is written after the rejection
		require.Eventually(t, func() bool { lines = r.logs.FilterMessage(message).All(); return len(lines) == 1 }, 20*time.Second, 5*time.Millisecond)
		return lines
	}
	require.Equal(t, []any{"research"}, said("agents are quarantined")[0].ContextMap()["agents"])
	require.Equal(t, allowed, mode(good))
	_, err := evil.GetConfig(t.Context(), &troupev1.GetConfigRequest{Agent: "research"})
	require.NoError(t, err)
	require.NoError(t, rpc.CheckServing(conns["research"], troupev1.MemoryService_ServiceDesc.ServiceName)(t.Context()))
	_, err = evil.PutConfig(t.Context(), &troupev1.PutConfigRequest{Agent: "research"})
	require.Equal(t, failure.PolicySecurity, failure.ModeOf(grpcfailure.FromStatus("test", err)))
	etcd.Stop()
	require.Equal(t, failure.PolicySecurity, mode(evil))
	etcd.Start()
	require.Eventually(t, func() bool { return operators.RemoveDesired(t.Context(), d.Key) == nil }, 20*time.Second, 50*time.Millisecond)
	turns(allowed)
	require.Equal(t, zap.InfoLevel, said("no agent is quarantined any more")[0].Level)
	said("agents are quarantined")
}
