package mesh

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/chaos/proxy"
	"github.com/troupe-dev/troupe/test/redistest"
)

// replica is one orchestrator. It keeps its address and its name across restarts.
type replica struct {
	id, addr   string
	redisProxy *proxy.Proxy
	process    *Process // nil before the first start
}

// StartReplica starts the orchestrator with the given number, counted from 0. It does not wait until the
// orchestrator is ready.
func (m *Mesh) StartReplica(n int) {
	m.t.Helper()
	r := m.replicas[n]
	r.process = m.launch(r.id, bugbuild.Orchestrator,
		"TROUPE_INSTANCE_ID="+r.id, "TROUPE_GRPC_ADDR="+r.addr, "TROUPE_MEMORY="+m.memoryAddr, "TROUPE_REDIS="+redistest.UserURL("orchestrator",
			r.redisProxy.Addr()),
		"TROUPE_AGENTS="+filepath.Join(bugbuild.RepositoryRoot(), "test", "chaos", "mesh", "agents"), "TROUPE_WORKFLOW=one", "TROUPE_DRAIN=100ms",
		"TROUPE_ROUTE_WAIT=12s") // a thawed orchestrator considers all workers unresponsive for 5 s
}

// KillReplica kills an orchestrator.
func (m *Mesh) KillReplica(n int) { m.t.Helper(); require.NoError(m.t, m.replicas[n].process.Kill()) }

// StopReplica stops an orchestrator with SIGTERM. The orchestrator's drain time is short.
func (m *Mesh) StopReplica(n int) { m.t.Helper(); require.NoError(m.t, m.replicas[n].process.Stop()) }

// CutOffReplica cuts the connections of an orchestrator to Redis until heal is called.
func (m *Mesh) CutOffReplica(n int) (heal func()) { return m.replicas[n].redisProxy.Sever() }

// FreezeReplica stops an orchestrator with SIGSTOP until thaw is called.
func (m *Mesh) FreezeReplica(n int) (thaw func()) {
	m.t.Helper()
	thaw, err := m.replicas[n].process.Freeze()
	require.NoError(m.t, err)
	return thaw
}

// ReplicaName returns the name of the orchestrator in trace records.
func (m *Mesh) ReplicaName(n int) string { return m.replicas[n].id }

// DialOrchestrators returns a connection to the orchestrators. Each call goes to any of them, as through a load
// balancer. The caller closes it before the mesh ends.
func (m *Mesh) DialOrchestrators() *ReplicasConn {
	m.t.Helper()
	c := &ReplicasConn{}
	for _, r := range m.replicas {
		c.replicas = append(c.replicas, m.dial(insecure.NewCredentials(), r.addr))
	}
	return c
}

// ReplicasConn is a connection that spreads its calls over all orchestrators.
type ReplicasConn struct{ replicas []*grpc.ClientConn }

var _ grpc.ClientConnInterface = (*ReplicasConn)(nil)

func (c *ReplicasConn) pickReplica() *grpc.ClientConn { return c.replicas[rand.IntN(len(c.replicas))] }

// ConnTo returns a connection to the orchestrator with the given number, counted from 0. Closing the ReplicasConn
// closes it.
func (c *ReplicasConn) ConnTo(n int) *grpc.ClientConn { return c.replicas[n] }

// Invoke implements grpc.ClientConnInterface.
func (c *ReplicasConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.pickReplica().Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *ReplicasConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.pickReplica().NewStream(ctx, desc, method, opts...)
}

// Close closes the connections to all orchestrators.
func (c *ReplicasConn) Close() error {
	var errs []error
	for _, conn := range c.replicas {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
