// Package rig runs a whole mesh for a test, in one of two ways behind one type: its
// services as goroutines of the test (InProcess), or as the built binaries over loopback
// (Binaries). Redis and etcd are real in both, and know who may do what; services talk to each
// other and to etcd under mutual TLS. Every part can be stopped and started again at its address, with its data.
package rig

import (
	"maps"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/loopback"
	"github.com/troupe-dev/troupe/test/redistest"
)

// Part names a part of the mesh.
type Part string

// The parts; Worker has the others.
const (
	Etcd         Part = "etcd"
	Redis        Part = "redis"
	Memory       Part = "memory"
	Orchestrator Part = "orchestrator"
)

// Worker is the worker of an agent.
func Worker(agent string) Part { return Part("worker " + agent) }

// Second is another worker of an agent. It runs only when a test starts it.
func Second(agent string) Part { return Worker(agent) + " second" }

// Agents of the mesh: those of the research assistant.
var Agents = []string{"coordinator", "clarification", "research", "synthesis"}

// patience is how long anything may take on a machine that is busy.
const patience = 60 * time.Second

// Config is what a test may choose.
type Config struct {
	RouteWait time.Duration // of the orchestrator; 0: 5 s
	Drain     time.Duration // of the orchestrator; 0: 10 s
	MaxTurns  int           // at once, of the orchestrator; 0: as many as steps
	LogLevel  string        // of binaries; empty: info
	Collector string        // URL that takes the spans of binaries; empty: they leave none
	AuditLogs string        // folder for the audit logs of binaries, by part; empty: they keep none
	Shutting  bool          // the memory service knows of quarantined agents, from etcd
	Rates     string        // file with how often callers of the orchestrator may call, in this process; empty: the defaults
	Office    bool          // the workflow of the orchestrator is office, and not research-assistant
	// OpenStores has Redis and etcd refuse nothing: the services come to Redis as Admin, and etcd
	// does not authenticate clients. Every rejection is then one of the services.
	OpenStores bool
	// Tokens makes the orchestrator require a token from clients. The mesh's own client has an
	// admin token.
	Tokens bool

	// Keys is for how long the first certificate of a process is valid, which it has from files, as
	// in production; then clients come over TLS and with a token. 0: a CA for development gives the
	// certificates, and clients come in plain text.
	Keys  time.Duration
	Plain bool // no authentication anywhere, the stores included
}

// Mesh is a running mesh. Its methods fail the test when they cannot do what they say, and
// are for the test's own goroutine.
type Mesh struct {
	*client.Client
	Conn *grpc.ClientConn // to the orchestrator

	t         testing.TB
	cfg       Config
	addresses map[string]string // of the services' ports
	etcd      *etcdtest.Etcd
	client    *clientv3.Client // of etcd; nil until it is needed
	redis     *redistest.Server
	tokens    string // folder with the token of the test; empty without client tokens
	devCA     string // folder of the CA for mutual TLS between services; empty without it
	keys      *keys  // of processes that have theirs from files
	launch    launcher
	running   map[Part]service
	programs  map[Part]Program // of the parts that a test brought along
	logs      []string         // files of the processes that were started
	told      zapcore.Core     // takes the lines of services in this process, at info
	lines     *observer.ObservedLogs
}

// service is a part that runs.
type service interface {
	stop() error // in order, as SIGTERM does
	kill()       // at once, as SIGKILL does, where the rig can
	wait() error // until it ends by itself
}

// launcher starts a service of the mesh. It does not wait until it is ready.
type launcher func(m *Mesh, p Part) service

// start brings a whole mesh up.
func start(t testing.TB, cfg Config, launch launcher) *Mesh {
	t.Helper()
	if cfg.RouteWait == 0 {
		cfg.RouteWait = 5 * time.Second
	}
	if cfg.Drain == 0 {
		cfg.Drain = drain
	}
	told, lines := observer.New(zap.InfoLevel)
	m := &Mesh{
		told: told, lines: lines,
		t: t, cfg: cfg, launch: launch, addresses: map[string]string{}, running: map[Part]service{}, programs: map[Part]Program{},
	}
	m.stores()
	if cfg.Keys > 0 {
		m.keep()
	}
	if cfg.Tokens || cfg.Keys > 0 {
		m.token()
	}
	var err error
	m.Conn, m.Client, err = m.Dialer()()
	require.NoError(t, err)
	t.Cleanup(m.stopAll)
	m.Start(Memory)
	for _, agent := range Agents {
		m.Start(Worker(agent))
	}
	m.Start(Orchestrator)
	m.AwaitReady()
	return m
}

// stores starts etcd and Redis.
func (m *Mesh) stores() {
	m.t.Helper()
	if m.cfg.Plain {
		m.etcd, m.redis = etcdtest.Start(m.t), redistest.New(m.t)
		return
	}
	m.devCA, m.redis = m.t.TempDir(), redistest.Guarded(m.t)
	if m.cfg.OpenStores {
		m.etcd = etcdtest.Start(m.t)
	} else {
		m.etcd = etcdtest.Guarded(m.t, m.devCA, Agents...)
	}
}

func (m *Mesh) stopAll() {
	require.NoError(m.t, m.Conn.Close())
	for _, p := range m.services() {
		if _, ok := m.running[p]; ok {
			m.Stop(p)
		}
	}
}

// services in the order in which they stop.
func (m *Mesh) services() []Part {
	all := []Part{Orchestrator}
	for _, agent := range Agents {
		all = append(all, Worker(agent), Second(agent))
	}
	all = slices.AppendSeq(all, maps.Keys(m.programs))
	return append(all, Memory)
}

// Start starts a part that was stopped. It does not wait until it is ready.
func (m *Mesh) Start(p Part) {
	m.t.Helper()
	switch p {
	case Etcd:
		m.etcd.Start()
	case Redis:
		m.redis.Start()
	default:
		if m.keys != nil {
			m.issue(p, m.cfg.Keys)
		}
		m.running[p] = m.launch(m, p)
	}
}

// Stop stops a part in order and returns when it has ended, without an error.
func (m *Mesh) Stop(p Part) {
	m.t.Helper()
	switch p {
	case Etcd:
		m.etcd.Stop()
	case Redis:
		m.redis.Kill() // its data is on disk; nothing is gained by asking it
	default:
		require.NoError(m.t, m.running[p].stop(), "%s did not stop in order", p)
		delete(m.running, p)
	}
}

// AwaitEnd returns once a service has ended by itself, without an error, and fails when it
// takes longer than that.
func (m *Mesh) AwaitEnd(p Part, within time.Duration) {
	m.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- m.running[p].wait() }()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case err := <-ended:
		require.NoError(m.t, err, "%s", p)
		delete(m.running, p)
	case <-timer.C:
		require.FailNow(m.t, "still there", "%s after %s", p, within)
	}
}

// Kill ends a part at once. In process that is a stop for services, and for etcd in both.
func (m *Mesh) Kill(p Part) {
	m.t.Helper()
	if p == Etcd || p == Redis {
		m.Stop(p)
		return
	}
	m.running[p].kill()
	delete(m.running, p)
}

// Restart stops a part and starts it again.
func (m *Mesh) Restart(p Part) {
	m.t.Helper()
	m.Stop(p)
	m.Start(p)
}

// Ready reports what the readiness probe of a service answers.
func (m *Mesh) Ready(p Part) bool {
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.httpAddr(p)+"/readyz", http.NoBody)
	require.NoError(m.t, err)
	resp, err := probes.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// probes keeps no connection, which would count as a leak.
var probes = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// AwaitReady returns once the orchestrator is ready and every agent takes steps.
func (m *Mesh) AwaitReady() {
	m.t.Helper()
	m.Await("every agent is ready", func() bool {
		if !m.Ready(Orchestrator) {
			return false
		}
		resp, err := m.ListAgents(m.t.Context(), &troupev1.ListAgentsRequest{})
		ready := 0
		for _, a := range resp.GetAgents() {
			if a.GetReady() > 0 && slices.Contains(Agents, a.GetName()) {
				ready++
			}
		}
		return err == nil && ready == len(Agents)
	})
}

// Await asks until the condition holds.
func (m *Mesh) Await(what string, holds func() bool) {
	m.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(m.t, "waited in vain", "for %s until: %s", patience, what)
		}
	}
}

// RedisAddr is where the Redis of the mesh is.
func (m *Mesh) RedisAddr() string { return m.redis.Addr }

// RedisURL is where a user finds the Redis of the mesh; redistest.Admin may do all, and with
// OpenStores everybody is that.
func (m *Mesh) RedisURL(user string) string {
	switch {
	case m.cfg.Plain:
		return "redis://" + m.redis.Addr + "/0"
	case m.cfg.OpenStores:
		user = redistest.Admin
	}
	return redistest.URL(user, m.redis.Addr)
}

// Lifecycle is the lifecycle of an agent's worker, as an orchestrator reaches it.
func (m *Mesh) Lifecycle(agent string) troupev1.LifecycleServiceClient {
	m.t.Helper()
	as, err := identity.Open(m.identity(), identity.Orchestrator, "", zap.NewNop())
	require.NoError(m.t, err)
	conn, err := rpc.DialWith(as.Client(identity.Worker, agent), m.grpcAddr(Worker(agent)), telemetry.Discard())
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, conn.Close()) })
	return troupev1.NewLifecycleServiceClient(conn)
}

// MemoryFor is the memory service, as a worker of an agent reaches it.
func (m *Mesh) MemoryFor(agent string) troupev1.MemoryServiceClient {
	m.t.Helper()
	as, err := identity.Open(m.identity(), identity.Worker, agent, zap.NewNop())
	require.NoError(m.t, err)
	conn, err := rpc.DialWith(as.Client(identity.Memory, ""), m.grpcAddr(Memory), telemetry.Discard())
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, conn.Close()) })
	return troupev1.NewMemoryServiceClient(conn)
}

// InstanceOf is the id of a worker's instance, which must be registered.
func (m *Mesh) InstanceOf(p Part) string {
	m.t.Helper()
	resp, err := m.ListInstances(m.t.Context(), &troupev1.ListInstancesRequest{})
	require.NoError(m.t, err)
	for _, in := range resp.GetInstances() {
		if in.GetAddress() == m.grpcAddr(p) {
			return in.GetInstanceId()
		}
	}
	require.FailNow(m.t, "not registered", "%s", p)
	return ""
}

// identity has each service prove who it is, by a certificate of the same CA.
func (m *Mesh) identity() identity.Config { return identity.Config{DevCA: m.devCA} }

func (m *Mesh) grpcAddr(p Part) string { return m.address(string(p) + "/grpc") }
func (m *Mesh) httpAddr(p Part) string { return m.address(string(p) + "/http") }

// address is a loopback address of its own, the same over restarts.
func (m *Mesh) address(of string) string {
	if m.addresses[of] == "" {
		m.addresses[of] = loopback.Address(m.t)
	}
	return m.addresses[of]
}

// root is the folder of the repository.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

func agentsDir() string { return filepath.Join(root(), "agents", "research-assistant") }

// workflows is where the orchestrator finds its workflows.
func (m *Mesh) workflows() string {
	if m.cfg.Office {
		return filepath.Join(root(), "test", "rig", "flows")
	}
	return agentsDir()
}

// docs is what the mesh searches.
func docs() string { return filepath.Join(root(), "test", "rig", "docs") }
