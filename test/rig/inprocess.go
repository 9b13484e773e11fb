package rig

import (
	"context"
	"errors"
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

// drain is how long parts may take to end what they do.
const drain = 10 * time.Second

// InProcess runs the services as goroutines of the test, with the race detector's eye on
// them. A kill is a stop there.
func InProcess(t testing.TB, cfg Config) *Mesh {
	t.Helper()
	return start(t, cfg, launchGoroutine)
}

type goroutine struct {
	cancel context.CancelFunc
	ended  chan error
}

func (g *goroutine) stop() error { g.cancel(); return <-g.ended }
func (g *goroutine) kill()       { _ = g.stop() }
func (g *goroutine) wait() error { defer g.cancel(); return <-g.ended }

func launchGoroutine(m *Mesh, p Part) service {
	m.t.Helper()
	t := m.telemetry(p)
	made, err := m.make(t, p)
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	g := &goroutine{cancel, make(chan error, 1)}
	go func() {
		err := made.Run(ctx, func() {})
		g.ended <- errors.Join(err, t.Audit.Close())
	}()
	return g
}

// telemetry of a part keeps its lines for Residue, and its audit log where there is one.
func (m *Mesh) telemetry(p Part) *telemetry.Telemetry {
	m.t.Helper()
	t := telemetry.For(zap.New(m.told))
	if m.cfg.AuditLogs != "" {
		var err error
		t.Audit, err = audit.New(audit.Config{Path: m.AuditLog(p), Name: string(p), Log: t.Log, Meter: t.Metrics.Meter("troupe/audit")})
		require.NoError(m.t, err)
	}
	return t
}

type runnable interface {
	Run(ctx context.Context, ready func()) error
}

func (m *Mesh) make(t *telemetry.Telemetry, p Part) (runnable, error) {
	switch p {
	case Memory:
		return memory.New(t, memory.Config{GRPCAddr: m.grpcAddr(p), HTTPAddr: m.httpAddr(p), Redis: m.RedisURL("memory"), Grace: drain, Identity: m.identityOf(p)})
	case Orchestrator:
		edge, clients := m.edge()
		return orchestrator.New(t, orchestrator.Config{
			HTTPAddr: m.httpAddr(p), Agents: m.workflows(), Timeout: time.Minute, Drain: m.cfg.Drain, Identity: m.identityOf(p),
			Port: orchestrator.PortConfig{
				GRPCAddr: m.grpcAddr(p), Reflection: true, Rates: m.cfg.Rates, PeerConnections: rpc.MaxPeerConnections,
				ClientTLS: edge, Clients: clients,
			},
			Stores:    orchestrator.StoresConfig{Memory: m.grpcAddr(Memory), Redis: m.RedisURL("orchestrator"), TraceRetention: time.Hour},
			Discovery: orchestrator.DiscoveryConfig{Etcd: m.etcd.Endpoints(), RouteWait: m.cfg.RouteWait},
			Admission: orchestrator.AdmissionConfig{MaxTurns: m.cfg.MaxTurns, MaxQueueTime: 5 * time.Second},
		}, nil)
	default: // a worker
	}
	if program, ok := m.programs[p]; ok {
		made, err := program.Make()
		if err != nil {
			return nil, err
		}
		return worker.New(t, worker.Config{
			GRPCAddr: m.grpcAddr(p), HTTPAddr: m.httpAddr(p), Etcd: m.etcd.Endpoints(), Memory: m.grpcAddr(Memory),
			InstanceID: program.Instance, Drain: program.Drain, Identity: m.identityOf(p),
		}, made)
	}
	for _, agent := range Agents {
		if p == Worker(agent) || p == Second(agent) {
			return workers.New(m.t.Context(), t, workers.Config{Agents: agentsDir(), Agent: agent, Docs: docs(), Worker: worker.Config{
				GRPCAddr: m.grpcAddr(p), HTTPAddr: m.httpAddr(p), Etcd: m.etcd.Endpoints(), Memory: m.grpcAddr(Memory), Drain: drain,
				Identity: m.identityOf(p),
			}}, nil)
		}
	}
	return nil, errors.New("no such part: " + string(p))
}
