// Package mesh runs the parts of a mesh for the chaos suite. It runs the shipped binaries of the memory service
// and the orchestrator, chaos workers, a Redis as durable as in production, and an etcd. All use mutual TLS, and
// both stores authenticate their users. Proxies can drop replies between the memory service and Redis, and between
// workers and the memory service.
package mesh

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/chaos/proxy"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/loopback"
	"github.com/troupe-dev/troupe/test/redistest"
)

// Agent is the agent that the workers host.
const Agent = "chaos"

// waitTimeout is how long a part may take to start, even on a busy machine.
const waitTimeout = 60 * time.Second

// Config configures a mesh.
type Config struct {
	// Programs maps the program names of package bugbuild to the paths of built programs.
	Programs   map[string]string
	Workers    int      // number of workers (0 runs only the memory service, Redis and etcd)
	Replicas   int      // number of orchestrators, if there are workers (0 means one)
	LedgerURL  string   // URL of the ledger
	RedisFlags []string // flags in addition to the production flags
	// Durability is the class that the memory service requires of Redis (empty means its default).
	Durability string
	// LogFolder is the folder for the output of programs (empty means a folder that is removed with the test).
	LogFolder string
}

// Mesh is a running mesh. Unless stated otherwise, its methods must be called from the goroutine of the test,
// and fail the test on errors.
type Mesh struct {
	Redis       *redistest.Server
	Etcd        *etcdtest.Etcd
	RedisProxy  *proxy.Proxy // between the memory service and Redis
	MemoryProxy *proxy.Proxy // between workers or test clients and the memory service

	t          testing.TB
	cfg        Config
	folder     string // folder of the logs
	devCA      string // folder of the CA that gives each program its certificate
	memoryAddr string
	memory     *Process
	replicas   []*replica

	mu             sync.Mutex
	workers        []*Process
	workersStarted int // number of workers started so far
}

// Start runs a mesh until the test ends.
func Start(t testing.TB, cfg Config) *Mesh {
	t.Helper()
	m := &Mesh{t: t, cfg: cfg, folder: cmp.Or(cfg.LogFolder, t.TempDir()), memoryAddr: loopback.Address(t), devCA: t.TempDir()}
	m.Redis = redistest.StartGuarded(t, cfg.RedisFlags...)
	m.Etcd = etcdtest.StartGuarded(t, m.devCA, Agent)
	m.RedisProxy, m.MemoryProxy = m.startProxy(m.Redis.Addr), m.startProxy(m.memoryAddr)
	t.Cleanup(m.stop)
	m.StartMemory()
	if cfg.Workers > 0 {
		for n := range max(1, cfg.Replicas) {
			m.replicas = append(m.replicas, &replica{
				id: fmt.Sprintf("orchestrator-%d", n+1), addr: loopback.Address(t),
				redisProxy: m.startProxy(m.Redis.Addr),
			})
			m.StartReplica(n)
		}
	}
	for range cfg.Workers {
		m.StartWorker()
	}
	return m
}

func (m *Mesh) startProxy(target string) *proxy.Proxy {
	m.t.Helper()
	p, err := proxy.New(target)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, p.Close()) })
	return p
}

// stop kills the parts that still run. A chaos run does not test graceful shutdown.
func (m *Mesh) stop() {
	running := append(slices.Clone(m.workers), m.memory)
	for _, r := range m.replicas {
		running = append(running, r.process)
	}
	for _, p := range running {
		if p != nil && !p.HasEnded() {
			_ = p.Kill()
		}
	}
}

// launch starts a program. All programs get the same settings, and each ignores the settings that it does not
// know.
func (m *Mesh) launch(id, program string, env ...string) *Process {
	m.t.Helper()
	env = append([]string{
		"TROUPE_HTTP_ADDR=127.0.0.1:0", "TROUPE_LOG_LEVEL=info", "TROUPE_ETCD=" + strings.Join(m.Etcd.Endpoints(), ","),
		"TROUPE_TLS_DEV_CA=" + m.devCA,
	}, env...)
	p, err := launch(id, m.cfg.Programs[program], filepath.Join(m.folder, id+".log"), env)
	require.NoError(m.t, err)
	return p
}

// StartMemory starts the memory service. It does not wait until it is ready.
func (m *Mesh) StartMemory() {
	m.t.Helper()
	m.memory = m.launch("memory", bugbuild.Memory,
		"TROUPE_GRPC_ADDR="+m.memoryAddr, "TROUPE_REDIS="+redistest.UserURL("memory", m.RedisProxy.Addr()), "TROUPE_DURABILITY="+cmp.Or(m.cfg.Durability, "D1"))
}

// KillMemory kills the memory service.
func (m *Mesh) KillMemory() { m.t.Helper(); require.NoError(m.t, m.memory.Kill()) }

// StartWorker starts a worker with a new address and a new id, as a cluster does.
func (m *Mesh) StartWorker() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.workersStarted++
	id := fmt.Sprintf("worker-%d", m.workersStarted)
	m.workers = append(m.workers, m.launch(id, bugbuild.Worker,
		"TROUPE_INSTANCE_ID="+id, "TROUPE_GRPC_ADDR=127.0.0.1:0", "TROUPE_MEMORY="+m.MemoryProxy.Addr(), "CHAOS_LEDGER="+m.cfg.LedgerURL))
}

// Workers returns the running workers, oldest first.
func (m *Mesh) Workers() []*Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.workers)
}

// Worker returns the running worker with the given id.
func (m *Mesh) Worker(id string) (*Process, bool) {
	for _, p := range m.Workers() {
		if p.ID == id {
			return p, true
		}
	}
	return nil, false
}

// KillWorker kills a worker.
func (m *Mesh) KillWorker(p *Process) {
	m.t.Helper()
	require.NoError(m.t, p.Kill())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.workers = slices.DeleteFunc(m.workers, func(w *Process) bool { return w == p })
}

// CountLogLines counts the log lines of all workers, killed ones included, that contain all of the texts.
func (m *Mesh) CountLogLines(texts ...string) (lines int) {
	m.t.Helper()
	logs, err := filepath.Glob(filepath.Join(m.folder, "worker-*.log"))
	require.NoError(m.t, err)
	for _, log := range logs {
		said, err := os.ReadFile(log)
		require.NoError(m.t, err)
		for line := range strings.Lines(string(said)) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				lines++
			}
		}
	}
	return lines
}

// DialMemory connects to the memory service, directly or through the proxy that drops replies.
func (m *Mesh) DialMemory(lossy bool) *Caller {
	m.t.Helper()
	addr := m.memoryAddr
	if lossy {
		addr = m.MemoryProxy.Addr()
	}
	as := func(role identity.Role, agent string) *identity.Source {
		self, err := identity.Open(identity.Config{DevCA: m.devCA}, role, agent, zap.NewNop())
		require.NoError(m.t, err)
		return self
	}
	orchestrator, worker := as(identity.Orchestrator, ""), as(identity.Worker, Agent)
	return &Caller{
		orchestrator: m.dial(orchestrator.ClientCredentials(identity.Memory, ""), addr), worker: m.dial(worker.ClientCredentials(identity.Memory, ""), addr),
		signer: turncred.New(orchestrator),
	}
}

// dial returns a connection once it is ready, so that no test begins with a backoff.
func (m *Mesh) dial(as credentials.TransportCredentials, addr string) *grpc.ClientConn {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), waitTimeout)
	defer cancel()
	for {
		conn, err := rpc.DialWith(as, addr, telemetry.Discard())
		require.NoError(m.t, err)
		conn.Connect()
		for state := conn.GetState(); state != connectivity.Ready && state != connectivity.TransientFailure; state = conn.GetState() {
			if !conn.WaitForStateChange(ctx, state) {
				break
			}
		}
		if conn.GetState() == connectivity.Ready {
			return conn
		}
		require.NoError(m.t, conn.Close())
		require.NoError(m.t, ctx.Err(), "waiting for %s", addr)
	}
}
