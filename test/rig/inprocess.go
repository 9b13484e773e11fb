package rig

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	workers "github.com/troupe-dev/troupe/services/worker/app"
)

// StartInProcess starts a mesh whose services run as goroutines of the test, so that the race detector covers
// them. Kill only stops a service gracefully.
func StartInProcess(t testing.TB, cfg Config) *Mesh {
	t.Helper()
	return start(t, cfg, launchGoroutine)
}

// goroutine is a service that runs in the process of the test.
type goroutine struct {
	cancel context.CancelFunc
	done   chan error
}

func (g *goroutine) stop() error { g.cancel(); return <-g.done }
func (g *goroutine) kill()       { _ = g.stop() }
func (g *goroutine) wait() error { defer g.cancel(); return <-g.done }

func launchGoroutine(m *Mesh, p Part) service {
	m.t.Helper()
	tel := telemetry.FromLogger(zap.New(m.core)) // for Residue
	if m.cfg.AuditLogFolder != "" {
		var err error
		tel.Audit, err = audit.New(audit.Config{Path: m.AuditLog(p), Name: string(p), Log: tel.Log, Meter: tel.Metrics.Meter("troupe/audit")})
		require.NoError(m.t, err)
	}
	app := newListeningApp(m, tel, p)
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	g := &goroutine{cancel, make(chan error, 1)}
	go func() {
		err := app.Run(ctx, func() {})
		g.done <- errors.Join(err, tel.Audit.Close())
	}()
	return g
}

// newListeningApp returns the service once it has its ports. The previous instance has closed them, but a process
// that another test starts may have inherited them: it closes them when it executes its program.
func newListeningApp(m *Mesh, tel *telemetry.Telemetry, p Part) (a app) {
	m.t.Helper()
	m.Await(string(p)+" has its ports", func() bool {
		var err error
		if a, err = newApp(m, tel, p); errors.Is(err, syscall.EADDRINUSE) {
			return false
		}
		require.NoError(m.t, err)
		return true
	})
	return a
}

// app is a service that can run in process.
type app interface {
	Run(ctx context.Context, ready func()) error
}

func newApp(m *Mesh, tel *telemetry.Telemetry, p Part) (app, error) {
	switch p {
	case Memory:
		return memory.New(tel, memory.Config{
			GRPCAddr: m.Address(p), HTTPAddr: m.loopbackAddress(p, "http"), Redis: m.Stores.RedisURL("memory"), Grace: defaultDrain,
			Identity: m.Credentials.ProcessConfig(string(p)),
		})
	case Orchestrator:
		edge, tokens := m.Credentials.ClientPortConfig()
		return orchestrator.New(tel, orchestrator.Config{
			HTTPAddr: m.loopbackAddress(p, "http"), Agents: m.cfg.workflows(), Timeout: time.Minute, Drain: m.cfg.DrainTimeout,
			Identity: m.Credentials.ProcessConfig(string(p)),
			Port: orchestrator.PortConfig{
				GRPCAddr: m.Address(p), Reflection: true, Rates: m.cfg.RatesFile, PeerConnections: rpc.MaxPeerConnections,
				ClientTLS: edge, Clients: tokens,
			},
			Stores: orchestrator.StoresConfig{
				Memory: m.Address(Memory), Redis: m.Stores.RedisURL("orchestrator"), TraceRetention: time.Hour,
			},
			Discovery: orchestrator.DiscoveryConfig{Etcd: m.Stores.Etcd.Endpoints(), RouteWait: m.cfg.RouteWait},
			Admission: orchestrator.AdmissionConfig{MaxTurns: m.cfg.MaxTurns, MaxQueueTime: 5 * time.Second},
		}, nil)
	default:
		return newWorker(m, tel, p)
	}
}

func newWorker(m *Mesh, tel *telemetry.Telemetry, p Part) (app, error) {
	cfg := worker.Config{
		GRPCAddr: m.Address(p), HTTPAddr: m.loopbackAddress(p, "http"), Etcd: m.Stores.Etcd.Endpoints(), Memory: m.Address(Memory),
		Drain: defaultDrain, Identity: m.Credentials.ProcessConfig(string(p)),
	}
	program, added := m.programs[p]
	if !added {
		return workers.New(m.t.Context(), tel, workers.Config{Agents: agentsDir(), Agent: m.programs.agentOf(p), Docs: documentsDir(), Worker: cfg}, nil)
	}
	a, err := program.NewAgent()
	if err != nil {
		return nil, err
	}
	cfg.InstanceID, cfg.Drain = program.Instance, program.DrainTimeout
	return worker.New(tel, cfg, a)
}
