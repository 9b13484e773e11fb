package standalone_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/standalone"
)

// A mesh with a quarantined agent can start again, even if that agent's worker must load a configuration.
// Otherwise the agent could not be released. The memory service rejects the agent even if it loses its data at
// each restart.
func TestRun_StartsWithAQuarantinedAgent(t *testing.T) {
	serveEchoModel(t)
	t.Setenv("PATH", "") // without redis-server
	f := &watchedFolder{t: t, dir: t.TempDir()}
	f.write("greeter.yaml", agentYAML("greeter", "  config: {protocol: merge}\n"))
	f.write("prompts/greeter.md", "Say hello.")
	cfg := standalone.Config{DataDir: t.TempDir(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Agents: os.DirFS(f.dir), Drain: 10 * time.Second}
	f.runningMesh = runMesh(t, cfg)
	_, err := f.QuarantineAgent(t.Context(), &troupev1.QuarantineAgentRequest{Agent: "greeter", Reason: "a drill"})
	require.NoError(t, err)
	f.stop()

	f.runningMesh = runMesh(t, cfg)
	self, err := identity.Open(identity.Config{DevCA: f.DevCA}, identity.Worker, "greeter", zap.NewNop())
	require.NoError(t, err)
	conn, err := rpc.DialWith(self.ClientCredentials(identity.Memory, ""), f.Memory, telemetry.Discard())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	await(t, "the memory service bars the agent", func() bool {
		_, err := troupev1.NewMemoryServiceClient(conn).PutConfig(t.Context(), &troupev1.PutConfigRequest{Agent: "greeter"})
		return failure.Is(grpcfailure.FromStatus("test", err), failure.PolicySecurity)
	})
	await(t, "an operator releases it", func() bool { // the orchestrator rejects it until it knows the quarantine
		_, err := f.ReleaseAgent(t.Context(), &troupev1.ReleaseAgentRequest{Agent: "greeter"})
		return err == nil
	})
	await(t, "it takes steps", func() bool { return f.readyInstances(t, "greeter") == 1 })
	require.Equal(t, "Say hello.", f.askAgent("greeter"))
}
