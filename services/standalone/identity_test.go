package standalone_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	workers "github.com/troupe-dev/troupe/services/worker/app"
)

// The services of a mesh accept calls only from the allowed roles, and never in plain text (guarantees, section 4.2).
// Clients need no certificate.
func TestRun_ServicesAcceptOnlyAllowedRoles(t *testing.T) {
	m := runMesh(t, testConfig(t))
	listed, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "research"})
	require.NoError(t, err)
	require.Len(t, listed.GetInstances(), 1)
	worker := listed.GetInstances()[0].GetAddress()

	getSession := func(conn *grpc.ClientConn) error {
		_, err := troupev1.NewMemoryServiceClient(conn).GetSession(t.Context(), &troupev1.MemoryServiceGetSessionRequest{SessionId: "s1"})
		return err
	}
	getState := func(conn *grpc.ClientConn) error {
		_, err := troupev1.NewLifecycleServiceClient(conn).GetState(t.Context(), &troupev1.GetStateRequest{})
		return err
	}
	step := func(conn *grpc.ClientConn) error {
		stream, err := troupev1.NewAgentServiceClient(conn).ExecuteStep(t.Context(), &troupev1.ExecuteStepRequest{})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	for _, c := range []struct {
		who     identity.Role // empty means plain text
		agent   string
		address string
		call    func(*grpc.ClientConn) error
		want    failure.Mode
	}{
		{identity.Orchestrator, "", m.Memory, getSession, failure.NotFound},         // the call was served
		{identity.Worker, "research", m.Memory, getSession, failure.PolicySecurity}, // it has no credential of a turn
		{identity.Memory, "", m.Memory, getSession, failure.PolicySecurity},
		{"", "", m.Memory, getSession, failure.SystemNetwork},
		{identity.Orchestrator, "", worker, getState, ""},
		{identity.Worker, "research", worker, getState, failure.PolicySecurity},
		{identity.Worker, "synthesis", worker, step, failure.PolicySecurity},
		{identity.Memory, "", worker, step, failure.PolicySecurity},
		{"", "", worker, step, failure.SystemNetwork},
	} {
		var self *identity.Source
		if c.who != "" {
			self, err = identity.Open(identity.Config{DevCA: m.DevCA}, c.who, c.agent, zap.NewNop())
			require.NoError(t, err)
		}
		at, agent := identity.Memory, ""
		if c.address == worker {
			at, agent = identity.Worker, "research"
		}
		conn, err := rpc.DialWith(self.ClientCredentials(at, agent), c.address, telemetry.Discard())
		require.NoError(t, err)
		err = grpcfailure.FromStatus("test", c.call(conn))
		require.NoError(t, conn.Close())
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, c.want, failure.ModeOf(err), "%s at %s: %v", c.who, c.address, err)
		if c.want == failure.PolicySecurity {
			require.ErrorContains(t, err, string(c.who))
		}
	}
}

// A service on an address that other machines can reach needs its own certificate, or a flag that explicitly
// allows plain text.
func TestServices_RequireACertificateBeyondLoopback(t *testing.T) {
	const everywhere, here, redis = "0.0.0.0:0", "127.0.0.1:0", "redis://127.0.0.1:1/0"
	etcd := []string{"127.0.0.1:1"}
	ca, err := identity.OpenCA(t.TempDir())
	require.NoError(t, err)
	web, err := ca.WriteFiles(identity.Memory, "")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		role  identity.Role
		agent string
		make  func(addr string, own identity.Config, clients identity.EdgeConfig) (io.Closer, error)
		flag  string // the flag that gives the port TLS
	}{
		"memory": {identity.Memory, "", func(addr string, own identity.Config, _ identity.EdgeConfig) (io.Closer, error) {
			return memory.New(telemetry.Discard(), memory.Config{GRPCAddr: addr, HTTPAddr: here, Redis: redis, Identity: own})
		}, "--tls-cert"},
		"orchestrator": {identity.Orchestrator, "", func(addr string, own identity.Config, clients identity.EdgeConfig) (io.Closer, error) {
			return orchestrator.New(telemetry.Discard(), orchestrator.Config{
				HTTPAddr: here, Identity: own,
				Port:      orchestrator.PortConfig{GRPCAddr: addr, ClientTLS: clients, Clients: bearer.Config{Anonymous: true}},
				Stores:    orchestrator.StoresConfig{Redis: redis, Memory: "127.0.0.1:1"},
				Discovery: orchestrator.DiscoveryConfig{Etcd: etcd},
			}, researchassistant.FS)
		}, "--client-tls-cert"},
		"worker": {identity.Worker, "synthesis", func(addr string, own identity.Config, _ identity.EdgeConfig) (io.Closer, error) {
			return workers.New(t.Context(), telemetry.Discard(), workers.Config{Agent: "synthesis", Worker: worker.Config{
				GRPCAddr: addr, HTTPAddr: here, AdvertiseAddr: "worker.example:7402", Etcd: etcd, Memory: "127.0.0.1:1", Identity: own,
			}}, researchassistant.FS)
		}, "--tls-cert"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := ca.WriteFiles(c.role, c.agent)
			require.NoError(t, err)
			other, err := ca.WriteFiles(identity.Worker, "other")
			require.NoError(t, err)
			edge := identity.EdgeConfig{Cert: web.Cert, Key: web.Key}
			_, err = c.make(everywhere, identity.Config{}, identity.EdgeConfig{})
			require.ErrorContains(t, err, "--grpc-addr: other machines reach ")
			require.ErrorContains(t, err, c.flag)
			require.ErrorContains(t, err, "--insecure-plaintext-beyond-loopback")
			_, err = c.make(everywhere, other, edge)
			require.ErrorContains(t, err, "--tls-cert: the certificate belongs to spiffe://dev.troupe/worker/other")
			for _, own := range []identity.Config{files, {InsecurePlaintext: true}} {
				made, err := c.make(everywhere, own, edge)
				require.NoError(t, err)
				require.NoError(t, made.Close())
			}
			made, err := c.make(here, identity.Config{}, identity.EdgeConfig{})
			require.NoError(t, err)
			require.NoError(t, made.Close())
		})
	}
}
