// Package app is the composition root of the orchestrator. It chooses the implementation of each interface, and runs
// the parts until the process stops.
package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/clientport"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/discovery"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/stores"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/api"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/api/sessions"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/erase"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/replay"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/compact"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// App is an orchestrator process. Its ports are open as soon as New returns.
type App struct {
	cfg          Config
	env          Environment
	telemetry    *telemetry.Telemetry
	readiness    *probe.Board
	grpc         *rpc.Server
	grpcLis      net.Listener
	httpLis      net.Listener
	discovery    *discovery.Discovery
	runner       *turn.Runner
	eraser       *erase.Eraser
	compactor    *compact.Compactor
	dependencies []probe.Dependency
	certificates []identity.Refreshable
	closers      process.Closers
}

// Names of the readiness conditions that do not depend on the stores.
const (
	conditionRegistry = "registry"
	conditionTurns    = "turns" // met until the orchestrator stops
)

// New opens the ports and reads the workflows. It reads them from files, or from the configured folder if files is
// nil. It connects to no other service. The caller must call Run, which closes what New opened, or else Close.
func New(t *telemetry.Telemetry, cfg Config, files fs.FS) (*App, error) {
	return NewIn(Environment{}, t, cfg, files)
}

// NewIn is like New, in an environment.
func NewIn(env Environment, t *telemetry.Telemetry, cfg Config, files fs.FS) (*App, error) {
	if cfg.InstanceID == "" {
		cfg.InstanceID = "orchestrator-" + uuid.NewString()[:8]
	}
	if files == nil {
		files = os.DirFS(cfg.Agents)
	}
	board := probe.NewBoard(conditionRegistry, stores.ConditionMemory, stores.ConditionTraces)
	a := &App{cfg: cfg, env: env, telemetry: t, readiness: board}
	if err := a.open(files); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open(files fs.FS) error {
	workflows, err := workflow.Load(files, a.cfg.Workflow)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace("--agents "+a.cfg.Agents), err)
	}
	self, err := identity.Open(a.cfg.Identity, identity.Orchestrator, "", a.telemetry.Log)
	if err != nil {
		return err
	}
	// Servers inside the mesh watch the mesh certificate and report its expiry as a metric. The client port has
	// its own certificate.
	if err := self.RegisterMetrics(a.telemetry.Metrics.Meter("troupe/identity")); err != nil {
		return err
	}
	port, err := a.openPorts(self)
	if err != nil {
		return err
	}
	s, err := stores.Open(a.cfg.Stores, a.env.stores(), self, a.telemetry)
	if err != nil {
		return err
	}
	a.closers.Add(s)
	a.dependencies = s.Dependencies
	controller, err := a.openDiscovery(self)
	if err != nil {
		return err
	}
	traces, credentials := trace.New(s.Traces, a.telemetry.Log), turncred.New(self)
	if a.compactor, err = compact.New(compact.Config{
		Memory: s.Memory, Summarize: compact.ByWorkers(a.discovery.Instances, a.discovery.Pool), Telemetry: a.telemetry,
	}); err != nil {
		return err
	}
	if a.runner, err = turn.New(turn.Config{
		Owner: a.cfg.InstanceID, Timeout: a.cfg.Timeout, Memory: s.Memory, Traces: traces, Instances: a.discovery.Instances,
		Dispatcher: a.discovery.Dispatcher, Workflows: workflows, Permits: controller, Telemetry: a.telemetry, Credentials: credentials,
		Compactor: a.compactor,
	}); err != nil {
		return err
	}
	a.eraser = erase.New(erase.Config{Memory: s.Memory, Traces: s.Traces, CancelTurn: a.runner.Cancel, Log: a.telemetry.Log})
	if a.grpc, err = port.NewServer(clientport.Guard{
		Credentials: credentials, FindTrace: s.Traces.Get, TraceStatus: traces.Status, CheckBarred: a.discovery.Instances.Desired().RejectQuarantined,
	}); err != nil {
		return err
	}
	a.registerServices(s, traces, workflows, credentials)
	return nil
}

// openPorts listens on both ports, and returns the one for gRPC.
func (a *App) openPorts(self *identity.Source) (*clientport.Port, error) {
	port, err := clientport.Open(a.cfg.Port, a.env.Network, a.cfg.Identity.InsecurePlaintext, a.telemetry)
	if err != nil {
		return nil, err
	}
	a.certificates = []identity.Refreshable{self, port.Certificate}
	a.grpcLis = port.Listener
	a.closers.Add(a.grpcLis)
	if a.httpLis, err = a.env.Network.Listen("--http-addr", a.cfg.HTTPAddr); err != nil {
		return nil, err
	}
	a.closers.Add(a.httpLis)
	return port, nil
}

// openDiscovery opens the discovery of instances. It returns the admission controller, whose limit follows the
// capacity of the instances.
func (a *App) openDiscovery(self *identity.Source) (*admission.Controller, error) {
	var controller *admission.Controller
	var err error
	a.discovery, err = discovery.Open(a.cfg.Discovery, a.env.discovery(), self, a.telemetry, func(known bool) {
		if known {
			a.readiness.Set(conditionRegistry, nil)
		}
		controller.AdmitWaiting()
	})
	if err != nil {
		return nil, err
	}
	a.closers.Add(a.discovery)
	limits := a.cfg.Admission
	controller, err = admission.New(admission.Config{
		MaxTurns: a.maxTurns, MaxTurnsPerTenant: limits.MaxTenantTurns, MaxQueue: limits.MaxQueue, MaxQueueTime: limits.MaxQueueTime,
		Meter: a.telemetry.Metrics.Meter("troupe/orchestrator"),
	})
	return controller, err
}

func (a *App) registerServices(s *stores.Stores, traces *trace.Traces, workflows *workflow.Set, credentials *turncred.Authority) {
	d := a.discovery
	server := &api.Orchestrator{Runner: a.runner, Traces: traces, Instances: d.Instances, Workflows: workflows, Operator: d.Operator}
	server.Replayer = &replay.Replayer{
		Memory: s.Memory, Traces: s.Traces, Instances: d.Instances, Pool: d.Pool, Workflows: workflows, Credentials: credentials,
	}
	a.closers.Add(server)
	troupev1.RegisterOrchestratorServiceServer(a.grpc, server)
	troupev1.RegisterSessionServiceServer(a.grpc, &sessions.Server{Memory: s.Memory, Eraser: a.eraser, Compactor: a.compactor})
}

// maxTurns returns how many turns may run at once: as many as the instances can run steps. With more turns, steps
// would queue behind each other and answers would come too late. While no instance is known, turns fail quickly
// with a clear reason, so the limit is high.
func (a *App) maxTurns() int {
	if a.cfg.Admission.MaxTurns > 0 {
		return a.cfg.Admission.MaxTurns
	}
	if capacity := a.discovery.Instances.Capacity(); capacity > 0 {
		return capacity
	}
	return turnsWithoutInstances
}

// turnsWithoutInstances is the limit of running turns while no instance is known.
const turnsWithoutInstances = 256

// GRPCAddr returns the address that serves gRPC.
func (a *App) GRPCAddr() string { return a.grpcLis.Addr().String() }

// HTTPAddr returns the address that serves probes and metrics.
func (a *App) HTTPAddr() string { return a.httpLis.Addr().String() }

// Run serves until ctx ends. It calls ready once every dependency has answered. After ctx ends, running turns have
// the drain time to finish.
func (a *App) Run(ctx context.Context, ready func()) error {
	defer func() { _ = a.Close() }()
	a.grpc.FollowBoard(a.readiness)
	a.telemetry.Log.Info("serving", zap.Stringer("grpc", a.grpcLis.Addr()), zap.Stringer("http", a.httpLis.Addr()),
		zap.String("version", process.Version()))
	parts := []process.Part{
		probe.ServerPart(a.httpLis, a.readiness.Handler(a.telemetry.MetricsHandler)),
		{Name: "certificates", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
			ready()
			identity.WatchCertificates(ctx, a.certificates...)
			return nil
		}},
	}
	parts = append(parts, a.discovery.Parts()...)
	for _, d := range a.dependencies { // an unreachable store makes the orchestrator unready, but does not prevent its start
		parts = append(parts, probe.DependencyPart(a.readiness, a.telemetry.Log, d, false))
	}
	parts = append(parts,
		a.grpc.ProcessPart(a.grpcLis, time.Second), // streams have ended with their turns by then
		process.Part{Name: "turns", Grace: a.cfg.Drain + stopTimeout, Run: a.runTurns})
	return process.Run(ctx, a.telemetry.Log, ready, parts...)
}

// stopTimeout bounds the handover or cancellation of the turns that still run after the drain time.
const stopTimeout = 35 * time.Second

// runTurns maintains traces and erasures until the last turn of this orchestrator has ended or was handed over. It
// calls ready when all readiness conditions are met.
func (a *App) runTurns(ctx context.Context, ready func()) error {
	a.readiness.OnChange(func(met bool) {
		if met {
			ready()
		}
	})
	maintained, stop := context.WithCancel(context.WithoutCancel(ctx))
	var maintenance sync.WaitGroup
	maintenance.Go(func() { a.runner.Maintain(maintained) })
	maintenance.Go(func() { a.compactor.Run(maintained) })
	maintenance.Go(func() { a.eraser.ResumePeriodically(maintained) })
	defer maintenance.Wait()
	defer stop()
	<-ctx.Done()
	a.readiness.Set(conditionTurns, errors.New("stopping"))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Drain)
	defer cancel()
	a.runner.Close(ctx)
	return nil
}

// Close closes the ports and connections of an App if Run was never called. Further calls do nothing.
func (a *App) Close() error { return a.closers.Close() }
