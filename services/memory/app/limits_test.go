package app

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/redistest"
)

// A worker that exceeds its call rate delays neither other workers nor orchestrators.
func TestApp_LimitsTheCallRateOfWorkers(t *testing.T) {
	s := &secureApp{dir: t.TempDir()}
	rates := filepath.Join(t.TempDir(), "rates.yaml")
	require.NoError(t, os.WriteFile(rates, []byte("mesh: {rate: 0.001, burst: 2}"), 0o600))
	s.runningApp = runApp(t, "redis://"+redistest.Start(t), func(cfg *Config) {
		cfg.Identity, cfg.Rates = identity.Config{DevCA: s.dir}, rates
	})
	<-s.ready
	refused := func(role identity.Role, agent string) func() bool {
		m := troupev1.NewMemoryServiceClient(s.dial(t, role, agent))
		return func() bool {
			_, err := m.GetConfig(t.Context(), &troupev1.GetConfigRequest{Agent: "research"})
			return failure.Is(grpcfailure.FromStatus("test", err), failure.PolicyRateLimit)
		}
	}
	evil, good, orchestrator := refused(identity.Worker, "research"), refused(identity.Worker, "synthesis"), refused(identity.Orchestrator, "")
	require.False(t, evil())
	require.False(t, evil())
	require.True(t, evil())
	require.False(t, good())
	for range 10 {
		require.False(t, orchestrator())
	}
}

// A client address cannot use all file descriptors of the service. It may open more connections than a mesh on one
// machine needs.
func TestApp_LimitsConnectionsPerAddress(t *testing.T) {
	r := runApp(t, "redis://"+redistest.Start(t))
	<-r.ready
	for n := range rpc.MaxInternalPeerConnections + 1 {
		conn, err := net.Dial("tcp", r.GRPCAddr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if n%256 == 0 { // lets the server accept the pending connections
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			_, err = conn.Read(make([]byte, 1)) // an HTTP/2 server sends the first bytes
			require.Equal(t, n < rpc.MaxInternalPeerConnections, err == nil, "connection %d: %v", n, err)
		}
	}
}
