// Package app is the composition root of the orchestrator: the one place that knows which
// implementation stands behind each interface.
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
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/api"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/api/sessions"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/erase"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/operate"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/replay"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/scope"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// App is an orchestrator whose ports are open.
type App struct {
	cfg          Config
	telemetry    *telemetry.Telemetry
	board        *probe.Board
	grpc         *rpc.Server
	grpcLis      net.Listener
	httpLis      net.Listener
	registry     registry.Registry
	roster       *instances.Cache
	operator     *operate.Operator
	runner       *turn.Runner
	eraser       *erase.Eraser
	store        *redistrace.Store
	dependencies []probe.Dependency
	certificates []identity.Watched
	closers      process.Closers
}

// The conditions of the orchestrator's readiness.
const (
	conditionRegistry = "registry"
	conditionMemory   = "memory"
	conditionStore    = "trace store"
	conditionTurns    = "turns" // holds until the orchestrator stops
)

// New opens the ports, reads the workflows from the given files, and connects nothing yet.
// A nil files means the folder of the configuration. Run must follow; it closes what New
// opened.
func New(t *telemetry.Telemetry, cfg Config, files fs.FS) (*App, error) {
	if cfg.InstanceID == "" {
		cfg.InstanceID = "orchestrator-" + uuid.NewString()[:8]
	}
	if files == nil {
		files = os.DirFS(cfg.Agents)
	}
	a := &App{cfg: cfg, telemetry: t, board: probe.NewBoard(conditionRegistry, conditionMemory, conditionStore)}
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
	shown, err := a.cfg.ClientTLS.Open(a.telemetry.Log)
	if err != nil {
		return err
	}
	meter := a.telemetry.Metrics.Meter("troupe/identity") // a server inside the mesh measures and watches its own
	if err := errors.Join(self.Measure(meter), shown.Measure(meter)); err != nil {
		return err
	}
	a.certificates = []identity.Watched{self, shown}
	callers, err := bearer.Open(a.cfg.Clients, a.telemetry.Log)
	if err != nil {
		return err
	}
	if err := callers.Measure(meter); err != nil {
		return err
	}
	if a.grpcLis, err = rpc.Listen("--grpc-addr", a.cfg.GRPCAddr, a.cfg.ClientTLS.Permit(a.cfg.Identity.InsecurePlaintext), a.cfg.Clients.Permit); err != nil {
		return err
	}
	a.closers.Add(a.grpcLis)
	if a.httpLis, err = rpc.Listen("--http-addr", a.cfg.HTTPAddr); err != nil {
		return err
	}
	a.closers.Add(a.httpLis)

	if a.store, err = redistrace.New(redisconn.Config{URL: a.cfg.Redis, Security: a.cfg.RedisSecurity}, a.cfg.TraceRetention); err != nil {
		return err // it names the flag
	}
	a.closers.Add(a.store)
	conn, err := rpc.DialWith(self.Client(identity.Memory, ""), a.cfg.Memory, a.telemetry, troupev1.MemoryService_ServiceDesc.ServiceName)
	if err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	a.closers.Add(conn)
	creds, err := a.cfg.EtcdSecurity.Credentials(a.cfg.Etcd, self, a.telemetry.Log)
	if err != nil {
		return err
	}
	etcd, err := etcdregistry.DialWith(creds, a.cfg.Etcd, a.telemetry.Log)
	if err != nil {
		return fmt.Errorf("--etcd: %w", err)
	}
	a.closers.Add(etcd)
	a.registry = etcdregistry.New(etcd, a.telemetry.Log, etcdregistry.Config{})

	gate, err := admission.New(admission.Config{
		Turns: a.maxTurns, PerTenant: a.cfg.MaxTenantTurns, Queue: a.cfg.MaxQueue, QueueTime: a.cfg.MaxQueueTime,
		Meter: a.telemetry.Metrics.Meter("troupe/orchestrator"),
	})
	if err != nil {
		return err
	}
	pool := connection.NewPool(a.telemetry, rpc.Dial)
	pool.UseIdentity(self)
	a.roster = instances.New(a.telemetry.Log, func(listed bool, addresses map[string]bool) {
		if listed {
			a.board.Set(conditionRegistry, nil)
		}
		pool.CloseExcept(addresses)
		gate.AdmitWaiting()
	})
	a.roster.VerifyWith(pool.CheckHealth)
	a.roster.Desired().Await()
	a.operator = operate.New(a.roster, a.registry, pool, a.telemetry.Log)
	if err := a.measureRegistry(); err != nil {
		return err
	}
	memory := memoryrpc.New(conn)
	traces := trace.New(a.store, a.telemetry.Log)
	dispatcher := dispatch.New(a.roster, pool, a.cfg.RouteWait)
	credentials := turncred.New(self)
	if a.runner, err = turn.New(turn.Config{
		Owner: a.cfg.InstanceID, Timeout: a.cfg.Timeout, Memory: memory, Traces: traces, Roster: a.roster,
		Dispatcher: dispatcher, Workflows: workflows, Gate: gate, Telemetry: a.telemetry, Credentials: credentials,
	}); err != nil {
		return err
	}
	a.closers.Add(process.CloserFunc(pool.Close))
	a.closers.Add(process.CloserFunc(dispatcher.Close))
	rates, err := rate.Load(a.cfg.Rates, rate.Defaults())
	if err != nil {
		return fmt.Errorf("--rates: %w", err)
	}
	if a.grpc, err = rpc.NewServer(a.telemetry, rpc.Config{
		Reflection: a.cfg.Reflection, TLS: shown.Credentials(), Rates: rate.New(rates), PeerConnections: a.cfg.PeerConnections,
		Authenticate: turncred.Authenticate(credentials, callers.Authenticate), Scope: scope.New(credentials, a.store.Get, traces.Status), Barred: a.roster.Desired().RejectQuarantined,
	}); err != nil {
		return err
	}
	server := &api.Orchestrator{Runner: a.runner, Traces: traces, Roster: a.roster, Workflows: workflows, Operator: a.operator}
	server.Replayer = &replay.Replayer{Memory: memory, Traces: a.store, Roster: a.roster, Pool: pool, Workflows: workflows, Credentials: credentials}
	a.closers.Add(server)
	troupev1.RegisterOrchestratorServiceServer(a.grpc, server)
	a.eraser = erase.New(erase.Config{Memory: memory, Traces: a.store, Cancel: a.runner.Cancel, Log: a.telemetry.Log})
	troupev1.RegisterSessionServiceServer(a.grpc, &sessions.Server{Memory: memory, Eraser: a.eraser})
	a.dependencies = []probe.Dependency{
		{Condition: conditionMemory, Address: a.cfg.Memory, Check: rpc.Serving(conn, troupev1.MemoryService_ServiceDesc.ServiceName)},
		{Condition: conditionStore, Address: a.store.Addr(), Check: a.store.Ping},
	}
	return nil
}

// maxTurns is how many turns may run at once: one for each step that the instances take at
// once. With more, steps wait for each other, and answers
// come when nobody wants them any more. While no instance is known turns fail soon, and say
// why.
func (a *App) maxTurns() int {
	if a.cfg.MaxTurns > 0 {
		return a.cfg.MaxTurns
	}
	if places := a.roster.Capacity(); places > 0 {
		return places
	}
	return unknownTurns
}

// unknownTurns is how many turns may run at once while no instance is known.
const unknownTurns = 256

// measureRegistry tells for how long routing has worked from what it remembers (F9), and
// whether it doubts what it is told (F11).
func (a *App) measureRegistry() error {
	meter := a.telemetry.Metrics.Meter("troupe/orchestrator")
	_, stale := meter.Float64ObservableGauge("troupe.registry.staleness",
		metric.WithUnit("s"), metric.WithDescription("For how long the registry has been away; 0 while it is there."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(a.roster.Staleness().Seconds())
			return nil
		}))
	_, frozen := meter.Int64ObservableGauge("troupe.registry.frozen",
		metric.WithDescription("1 while many registrations vanished at once and none is removed; else 0."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			value := int64(0)
			if a.roster.IsFrozen() {
				value = 1
			}
			o.Observe(value)
			return nil
		}))
	return errors.Join(stale, frozen)
}

// GRPCAddr is where the orchestrator serves gRPC.
func (a *App) GRPCAddr() string { return a.grpcLis.Addr().String() }

// HTTPAddr is where it serves its probes.
func (a *App) HTTPAddr() string { return a.httpLis.Addr().String() }

// Run serves until ctx ends, and calls ready once every dependency was there. Turns that
// run when it stops may end within the drain time.
func (a *App) Run(ctx context.Context, ready func()) error {
	defer func() { _ = a.Close() }()
	a.grpc.Follow(a.board)
	a.telemetry.Log.Info("serving", zap.Stringer("grpc", a.grpcLis.Addr()), zap.Stringer("http", a.httpLis.Addr()), zap.String("version", process.Version()))
	parts := []process.Part{
		probe.Part(a.httpLis, a.board.Handler(a.telemetry.Scrape)),
		{Name: "certificates", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
			ready()
			identity.Watch(ctx, a.certificates...)
			return nil
		}},
		{Name: "registry", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
			ready()
			return a.roster.Watch(ctx, a.registry)
		}},
		{Name: "desired state", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
			ready()
			return a.operator.Run(ctx)
		}},
	}
	if a.cfg.Snapshot != "" {
		parts = append(parts, process.Part{Name: "snapshot", Grace: 5 * time.Second, Run: func(ctx context.Context, ready func()) error {
			ready()
			return instances.SnapshotFile{Path: a.cfg.Snapshot, Confirm: a.operator.Confirm}.Keep(ctx, a.roster)
		}})
	}
	for _, d := range a.dependencies { // what is away makes the orchestrator unready, and does not hold it up
		parts = append(parts, probe.DependencyPart(a.board, a.telemetry.Log, d, false))
	}
	parts = append(parts,
		a.grpc.Part(a.grpcLis, time.Second), // streams end with their turns, before
		process.Part{Name: "turns", Grace: a.cfg.Drain + stopTime, Run: a.runTurns})
	return process.Run(ctx, a.telemetry.Log, ready, parts...)
}

// stopTime is what handing over the turns that are left may take, or closing them.
const stopTime = 35 * time.Second

// runTurns tends the traces until the last turn that runs here has ended, or was handed over.
// Ready means that every dependency is there.
func (a *App) runTurns(ctx context.Context, ready func()) error {
	a.board.OnChange(func(met bool) {
		if met {
			ready()
		}
	})
	tended, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tending sync.WaitGroup
	tending.Go(func() { a.runner.Maintain(tended) })
	tending.Go(func() { a.eraser.Maintain(tended) })
	defer tending.Wait()
	defer stop()
	<-ctx.Done()
	a.board.Set(conditionTurns, errors.New("stopping"))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Drain)
	defer cancel()
	a.runner.Close(ctx)
	return nil
}

// Close closes what New opened, for an App that does not Run. It may be called again.
func (a *App) Close() error { return a.closers.Close() }
