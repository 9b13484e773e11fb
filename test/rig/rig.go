// Package rig runs a whole mesh for a test, either as goroutines of the test (InProcess) or as the built
// binaries over loopback (Binaries). Redis and etcd are real in both, and authenticate their clients. Services
// use mutual TLS with each other and with etcd. Each part can be stopped and started again, with its address
// and its data.
//
// A Mesh starts, stops and kills its parts, and is a client of its orchestrator. Its Stores show what Redis
// and etcd hold. Its Credentials let a test connect as another process. A Gate, from package gate, stops a
// step at a known place.
package rig

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/test/loopback"
	"github.com/troupe-dev/troupe/test/rig/credentials"
	"github.com/troupe-dev/troupe/test/rig/stores"
)

// waitTimeout bounds every wait, with room for a busy machine.
const waitTimeout = 60 * time.Second

// defaultDrain is how long parts may take to finish their work when they stop.
const defaultDrain = 10 * time.Second

// Config configures a mesh.
type Config struct {
	RouteWait        time.Duration // how long the orchestrator waits for an instance (0 means 5 s)
	DrainTimeout     time.Duration // drain time of the orchestrator (0 means 10 s)
	MaxTurns         int           // permits of the orchestrator (0 means one per slot)
	RatesFile        string        // file with the rates of the orchestrator's callers, in process only (empty means the defaults)
	TestWorkflows    bool          // the orchestrator has the workflows of the folder flows, and not those of the research assistant
	WatchQuarantines bool          // the memory service watches etcd for quarantined agents

	LogLevel       string // log level of binaries (empty means info)
	CollectorURL   string // URL that receives the spans of binaries (empty means none)
	AuditLogFolder string // folder of the audit logs, by part (empty means none)

	// OpenStores makes Redis and etcd accept every access, so that only services reject any. See stores.Open.
	OpenStores bool
	// RequireTokens makes the orchestrator require a token from clients. The mesh's own client has an admin's
	// token.
	RequireTokens bool
	// CertificateLifetime gives processes certificates from files, as in production, and is how long the first
	// certificates are valid. Clients then need TLS and a token. With 0 the certificates come from a development
	// CA, and clients connect in plain text.
	CertificateLifetime time.Duration
	Unauthenticated     bool // neither services nor stores authenticate their callers
}

// Mesh is a running mesh. Its methods fail the test on errors. They must be called from the goroutine of the test.
type Mesh struct {
	*client.Client                  // of the orchestrator
	Conn           *grpc.ClientConn // of the client
	Stores         *stores.Stores
	Credentials    *credentials.Credentials

	t         testing.TB
	cfg       Config
	addresses map[string]string // by part and port
	launch    launcher
	running   map[Part]service
	programs  programs

	outputPaths []string               // files with the output of all processes that ran
	core        zapcore.Core           // records the log of services in process, from info
	log         *observer.ObservedLogs // what core recorded
}

// start starts a whole mesh, which stops when the test ends.
func start(t testing.TB, cfg Config, launch launcher) *Mesh {
	t.Helper()
	if cfg.RouteWait == 0 {
		cfg.RouteWait = 5 * time.Second
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = defaultDrain
	}
	core, log := observer.New(zap.InfoLevel)
	m := &Mesh{
		t: t, cfg: cfg, launch: launch, addresses: map[string]string{}, running: map[Part]service{}, programs: programs{},
		core: core, log: log,
	}
	m.Credentials = credentials.New(t, credentials.Config{
		NoCertificates: cfg.Unauthenticated, CertificateFiles: cfg.CertificateLifetime > 0, RequireToken: cfg.RequireTokens || cfg.CertificateLifetime > 0,
	})
	m.Stores = stores.Start(t, stores.Config{Access: cfg.storeAccess(), DevCA: m.Credentials.DevCA, Agents: Agents})
	if m.Credentials.UsesFiles() {
		m.issueCertificate(credentials.Edge, cfg.CertificateLifetime)
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

func (c Config) storeAccess() stores.Access {
	switch {
	case c.Unauthenticated:
		return stores.Plain
	case c.OpenStores:
		return stores.Open
	default:
		return stores.Guarded
	}
}

// workflows returns the folder of the orchestrator's workflows.
func (c Config) workflows() string {
	if c.TestWorkflows {
		return filepath.Join(repositoryRoot(), "test", "rig", "flows")
	}
	return agentsDir()
}

// auditLog returns the file of a part's audit log.
func (c Config) auditLog(p Part) string {
	return filepath.Join(c.AuditLogFolder, p.fileName()+".jsonl")
}

// Address returns the gRPC address of a part.
func (m *Mesh) Address(p Part) string { return m.loopbackAddress(p, "grpc") }

// loopbackAddress returns an address of a part that stays the same after a restart.
func (m *Mesh) loopbackAddress(p Part, port string) string {
	key := string(p) + "/" + port
	if m.addresses[key] == "" {
		m.addresses[key] = loopback.Address(m.t)
	}
	return m.addresses[key]
}

// repositoryRoot returns the folder of the repository.
func repositoryRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

func agentsDir() string { return filepath.Join(repositoryRoot(), "agents", "research-assistant") }

// documentsDir returns the folder of documents that the agents search.
func documentsDir() string { return filepath.Join(repositoryRoot(), "test", "rig", "docs") }
