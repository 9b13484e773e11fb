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

// replica is one orchestrator. It keeps its address and its name over restarts.
type replica struct {
	id, addr string
	toRedis  *proxy.Proxy
	process  *Process // nil before the first start
}

// StartReplica starts an orchestrator, by number from 0. It does not wait until it is ready.
func (m *Mesh) StartReplica(n int) {
	m.t.Helper()
	r := m.replicas[n]
	r.process = m.launch(r.id, bugbuild.Orchestrator,
		"TROUPE_INSTANCE_ID="+r.id, "TROUPE_GRPC_ADDR="+r.addr, "TROUPE_MEMORY="+m.memoryAddr, "TROUPE_REDIS="+redistest.URL("orchestrator", r.toRedis.Addr()),
		"TROUPE_AGENTS="+filepath.Join(bugbuild.Root(), "test", "chaos", "mesh", "agents"), "TROUPE_WORKFLOW=one", "TROUPE_DRAIN=100ms",
		"TROUPE_ROUTE_WAIT=12s") // one that stood still takes all workers for silent, for 5 s
}

// KillReplica kills an orchestrator.
func (m *Mesh) KillReplica(n int) { m.t.Helper(); require.NoError(m.t, m.replicas[n].process.Kill()) }

// StopReplica stops an orchestrator with SIGTERM. Its drain time is short.
func (m *Mesh) StopReplica(n int) { m.t.Helper(); require.NoError(m.t, m.replicas[n].process.Stop()) }

// CutOffReplica cuts the connections of an orchestrator to Redis, until heal.
func (m *Mesh) CutOffReplica(n int) (heal func()) { return m.replicas[n].toRedis.Sever() }

// FreezeReplica stops an orchestrator as SIGSTOP does, until thaw.
func (m *Mesh) FreezeReplica(n int) (thaw func()) {
	m.t.Helper()
	thaw, err := m.replicas[n].process.Freeze()
	require.NoError(m.t, err)
	return thaw
}

// Replica returns the name of an orchestrator in trace records.
func (m *Mesh) Replica(n int) string { return m.replicas[n].id }

// Orchestrator returns a connection to the orchestrators. Each call goes to any of them, as through a load
// balancer. Close it before the mesh ends.
func (m *Mesh) Orchestrator() *Conn {
	m.t.Helper()
	c := &Conn{}
	for _, r := range m.replicas {
		c.replicas = append(c.replicas, m.dial(insecure.NewCredentials(), r.addr))
	}
	return c
}

// Conn is a connection to all orchestrators.
type Conn struct{ replicas []*grpc.ClientConn }

var _ grpc.ClientConnInterface = (*Conn)(nil)

func (c *Conn) pick() *grpc.ClientConn { return c.replicas[rand.IntN(len(c.replicas))] }

// To returns a connection to one orchestrator, by number from 0. It is closed with the others.
func (c *Conn) To(n int) *grpc.ClientConn { return c.replicas[n] }

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.pick().Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.pick().NewStream(ctx, desc, method, opts...)
}

// Close closes all.
func (c *Conn) Close() error {
	var errs []error
	for _, conn := range c.replicas {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
