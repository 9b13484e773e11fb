// Package standalone runs a whole mesh in one process: embedded etcd and Redis, the three services, and a worker
// for every declared agent. The services talk gRPC over loopback, with mutual TLS and the same fencing as in a
// cluster. Only the stores are embedded, and the certificates come from a CA in the data folder.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	"github.com/troupe-dev/troupe/services/standalone/store"
	workers "github.com/troupe-dev/troupe/services/worker/app"
)

// Config has the settings of a standalone mesh.
type Config struct {
	DataDir  string // folder of etcd and Redis, created if it does not exist
	GRPCAddr string // address of the orchestrator, the only port for clients
	HTTPAddr string // address of probes and metrics of the whole mesh
	Agents   fs.FS  // declared agents and workflows
	Watch    string // folder on disk that Agents reads; agents whose files change are replaced (empty disables that)
	Docs     string // folder for search_documents (empty means the declared one)
	AgentLog string // folder in which agents log their turns (empty disables that)
	Drain    time.Duration

	InsecurePlaintext bool // allows a GRPCAddr that other machines can reach; every caller may then do everything
}

// Check rejects a client address that other machines can reach, unless InsecurePlaintext is set. A development
// mesh has no certificate for it and does not authenticate callers.
func (c Config) Check() error {
	at, err := net.ResolveTCPAddr("tcp", c.GRPCAddr)
	if err != nil {
		return fmt.Errorf("--grpc-addr: %w", err)
	}
	if c.InsecurePlaintext || identity.IsLoopback(at) {
		return nil
	}
	return fmt.Errorf("--grpc-addr: other machines reach %s, and a mesh for development speaks plain text there; "+
		"serve on 127.0.0.1, or add --insecure-plaintext-beyond-loopback", c.GRPCAddr)
}

// Endpoints has the addresses of a running mesh.
type Endpoints struct {
	GRPC, HTTP string
	Agents     []string // as declared when the mesh started
	Workflows  []string // as declared when the mesh started
	Etcd       []string
	Memory     string
	Redis      string // URL with the credentials of the administrator
	DevCA      string // folder of the CA that issues certificates for the mesh
}

// anyPort makes the operating system choose a free loopback port.
const anyPort = "127.0.0.1:0"

// Run runs the mesh until ctx ends. It calls ready with the endpoints once an instance of every agent accepts
// steps. The parts start in order and stop in reverse order.
func Run(ctx context.Context, t *telemetry.Telemetry, cfg Config, ready func(Endpoints)) error {
	m, err := assemble(ctx, t, cfg)
	if err != nil {
		return err
	}
	err = process.Run(ctx, t.Log, func() { ready(m.endpoints) }, m.parts...)
	_ = m.close() // parts after one that did not start never ran; the others are closed
	return err
}

type mesh struct {
	endpoints Endpoints
	parts     []process.Part
	closers   []interface{ Close() error }
}

// close closes everything that was opened, in reverse order.
func (m *mesh) close() error {
	var errs []error
	for _, o := range slices.Backward(m.closers) {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}

// addService adds a service, whose ports are already open, to the parts that Run starts.
func (m *mesh) addService(name string, grace time.Duration, service interface {
	Run(ctx context.Context, ready func()) error
	Close() error
},
) {
	m.closers = append(m.closers, service)
	m.parts = append(m.parts, process.Part{Name: name, Grace: grace, Run: service.Run})
}

// assemble creates all parts of the mesh. When it returns, every port that another part must know is open.
func assemble(ctx context.Context, t *telemetry.Telemetry, cfg Config) (_ *mesh, err error) {
	m := &mesh{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if err = cfg.Check(); err != nil {
		return nil, err
	}
	m.endpoints.DevCA = DevCA(cfg.DataDir)
	redis, err := m.openStores(t, cfg)
	if err != nil {
		return nil, err
	}
	own := identity.Config{DevCA: m.endpoints.DevCA}
	settings := memory.Config{
		GRPCAddr: anyPort, HTTPAddr: anyPort, Redis: redis.URL("memory"), Durability: "D1", Etcd: m.endpoints.Etcd, Grace: cfg.Drain,
		Sessions: memory.SessionConfig{KeepJournals: traceRetention}, Identity: own,
	}
	if !redis.IsDurable() {
		settings.Durability, settings.Ephemeral = "D0", true // the data end with the process, so a data generation is useless
	}
	mem, err := memory.New(t.Named("memory"), settings)
	if err != nil {
		return nil, err
	}
	m.endpoints.Memory = mem.GRPCAddr()
	m.addService("memory", cfg.Drain+stopTime, mem)
	group, err := newWorkerGroup(ctx, t, cfg, &m.endpoints)
	if err != nil {
		return nil, err
	}
	m.addService("agents", cfg.Drain+stopTime, group)
	own.InsecurePlaintext = cfg.InsecurePlaintext
	orch, err := orchestrator.New(t.Named("orchestrator"), orchestrator.Config{
		HTTPAddr: cfg.HTTPAddr, InstanceID: "standalone", Timeout: turnTimeout, Drain: cfg.Drain, Identity: own,
		Port: orchestrator.PortConfig{
			GRPCAddr: cfg.GRPCAddr, Reflection: true, PeerConnections: rpc.MaxPeerConnections,
			Clients: bearer.Config{Anonymous: cfg.InsecurePlaintext},
		},
		Stores: orchestrator.StoresConfig{
			Memory: m.endpoints.Memory, Redis: redis.URL("orchestrator"), TraceRetention: traceRetention,
		},
		Discovery: orchestrator.DiscoveryConfig{Etcd: m.endpoints.Etcd, RouteWait: routeWait},
		Admission: orchestrator.AdmissionConfig{MaxQueueTime: queueTime},
	}, cfg.Agents)
	if err != nil {
		return nil, err
	}
	m.endpoints.GRPC, m.endpoints.HTTP = orch.GRPCAddr(), orch.HTTPAddr()
	m.addService("orchestrator", cfg.Drain+stopTime, orch) // last, so that its first list of instances has every agent
	return m, nil
}

// Agents returns the names of the agents that a folder declares. A folder without agents is an error.
func Agents(files fs.FS) ([]string, error) { return workers.Names(files) }

// DevCA returns the folder of the development CA, given the data folder of a mesh.
func DevCA(dataDir string) string { return filepath.Join(dataDir, "identity") }

// openStores opens the embedded etcd and Redis, with the users and permissions of the mesh.
func (m *mesh) openStores(t *telemetry.Telemetry, cfg Config) (*store.Redis, error) {
	ca, err := identity.OpenCA(m.endpoints.DevCA)
	if err != nil {
		return nil, err
	}
	agents, err := Agents(cfg.Agents)
	if err != nil {
		return nil, err
	}
	etcd, err := store.NewEtcd(store.EtcdConfig{DataDir: filepath.Join(cfg.DataDir, "etcd"), Log: t.Log, CA: ca, Agents: agents})
	if err != nil {
		return nil, err
	}
	redis, err := store.NewRedis(store.RedisConfig{DataDir: filepath.Join(cfg.DataDir, "redis"), Log: t.Log})
	if err != nil {
		return nil, err
	}
	m.endpoints.Etcd, m.endpoints.Redis = etcd.Endpoints(), redis.URL(store.Admin)
	m.parts = append(m.parts,
		process.Part{Name: "etcd", Grace: stopTime, Run: etcd.Run},
		process.Part{Name: "redis", Grace: stopTime, Run: redis.Run})
	return redis, nil
}

// Values for settings of the services that are flags elsewhere.
const (
	turnTimeout    = 2 * time.Minute
	routeWait      = 5 * time.Second
	queueTime      = 5 * time.Second
	traceRetention = 24 * time.Hour
	stopTime       = 40 * time.Second // how long a part may take to stop, beyond its drain
)
