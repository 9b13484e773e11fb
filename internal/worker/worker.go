// Package worker implements the process that hosts one agent: its ports, its registration in etcd, and the
// lifecycle of its instance. Packages stepserver and steprun run its steps. Authors of agents use package
// pkg/worker.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker/lifecycleserver"
	"github.com/troupe-dev/troupe/internal/worker/stepserver"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Worker is a process that hosts one agent.
type Worker struct {
	cfg                Config
	env                Environment
	telemetry          *telemetry.Telemetry
	agent              *agent.Agent
	instance           *lifecycle.Instance
	board              *probe.Board
	grpc               *rpc.Server
	grpcListener       net.Listener
	httpListener       net.Listener
	closers            process.Closers
	registrar          registry.Registrar
	registrationKeeper *registrationKeeper
	memory             probe.Dependency
}

// These are the conditions of a worker's readiness.
const (
	ConditionLifecycle = "lifecycle"
	conditionRegistry  = "registry"
	conditionMemory    = "memory"
)

// New opens the ports of a worker but connects to nothing. It returns an error for invalid settings and for ports
// in use. The caller must then call Run, which closes what New opened, or Close.
func New(t *telemetry.Telemetry, cfg Config, a *agent.Agent) (*Worker, error) {
	return NewIn(Environment{}, t, cfg, a)
}

// Environment is what a worker uses outside of its process. The zero value is TCP and etcd. The simulation replaces
// both.
type Environment struct {
	Network   rpc.Network
	Registrar registry.Registrar // where the worker registers (nil means in etcd)
}

// NewIn is like New, in an environment.
func NewIn(env Environment, t *telemetry.Telemetry, cfg Config, a *agent.Agent) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("worker %s: %w", a.Name(), err)
	}
	if cfg.InstanceID == "" {
		cfg.InstanceID = a.Name() + "-" + uuid.NewString()[:8]
	}
	w := &Worker{cfg: cfg, env: env, agent: a, telemetry: t.Named(a.Name()), board: probe.NewBoard(ConditionLifecycle, conditionRegistry, conditionMemory)}
	w.instance = lifecycle.New(lifecycle.Config{
		Capacity:       a.Capacity(),
		StartupTimeout: a.Lifecycle().Timeout,
		RetryOnFailure: a.Lifecycle().Retries > 0,
		MaxRetries:     a.Lifecycle().Retries,
		KeepFailed:     a.Lifecycle().KeepFailed,
		DropState:      a.Lifecycle().DropState,
		DrainTimeout:   cfg.Drain,
		Start:          a.Start,
		Leave:          func(ctx context.Context) error { return w.registrationKeeper.deregister(ctx) },
		Stop:           w.stopAgent,
		LogError: func(step string, err error) {
			w.telemetry.Log.Warn("a step of the lifecycle failed", zap.String("step", step), zap.Error(err))
		},
	})
	if err := w.openPortsAndClients(); err != nil {
		return nil, errors.Join(fmt.Errorf("worker %s: %w", a.Name(), err), w.Close())
	}
	capabilities, err := registry.MergeCapabilities(a.Capabilities(), cfg.Capabilities)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--capabilities: together with the capabilities of agent %s: %w", a.Name(), err), w.Close())
	}
	w.registrationKeeper = newRegistrationKeeper(w.telemetry.Log, w.registrar, w.instance, w.board, registry.Instance{
		ID: cfg.InstanceID, Agent: a.Name(), Address: w.address(), Version: a.Version(),
		Description: a.Description(), Capacity: a.Capacity(), Started: time.Now(), Capabilities: capabilities,
		Tools: registeredTools(a), ConfigProtocol: a.Config().Protocol(),
	})
	w.registrationKeeper.onLost = func() {
		w.shutDownInstance(context.Background(), "the registration was lost and could not be renewed")
	}
	w.memory.OnAvailable = func(context.Context) { w.registrationKeeper.setMemoryReady() }
	return w, nil
}

// registeredTools returns the agent's tools as they are registered.
func registeredTools(a *agent.Agent) (all []registry.Tool) {
	for _, t := range a.Toolbox() {
		all = append(all, registry.Tool(t))
	}
	return all
}

func (w *Worker) openPortsAndClients() (err error) {
	self, err := identity.Open(w.cfg.Identity, identity.Worker, w.agent.Name(), w.telemetry.Log)
	if err != nil {
		return err
	}
	if w.grpcListener, err = w.env.Network.Listen("--grpc-addr", w.cfg.GRPCAddr, w.cfg.Identity.CheckAddress, w.cfg.checkAdvertised); err != nil {
		return err
	}
	w.closers.Add(w.grpcListener)
	if w.httpListener, err = w.env.Network.Listen("--http-addr", w.cfg.HTTPAddr); err != nil {
		return err
	}
	w.closers.Add(w.httpListener)
	memory, err := w.env.Network.DialWith(self.ClientCredentials(identity.Memory, ""), w.cfg.Memory, w.telemetry, troupev1.MemoryService_ServiceDesc.ServiceName)
	if err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	w.closers.Add(memory)
	w.memory = probe.Dependency{
		Condition: conditionMemory, Address: w.cfg.Memory, Check: rpc.CheckServing(memory, troupev1.MemoryService_ServiceDesc.ServiceName),
	}
	tier := memoryrpc.New(memory)
	w.agent.Config().SetStore(&configStore{configs: tier, agentConfig: w.agent.Config(), agent: w.agent.Name()})
	if err := w.openRegistrar(self); err != nil {
		return err
	}
	if w.grpc, err = rpc.NewServer(w.telemetry, rpc.Config{
		Reflection: w.cfg.Reflection, Internal: true, Identity: self, Instance: w.cfg.InstanceID, PeerConnections: rpc.MaxInternalPeerConnections,
	}); err != nil {
		return err
	}
	troupev1.RegisterLifecycleServiceServer(w.grpc, &lifecycleserver.Server{
		Instance: w.instance, ID: w.cfg.InstanceID, Agent: w.agent.Name(), Version: w.agent.Version(), DefaultDrain: w.cfg.Drain, State: w.agent.State(),
		Instructions: w.agent.Instructions(),
	})
	steps, err := stepserver.New(w.telemetry, w.agent, w.instance, w.cfg.InstanceID, tier)
	if err != nil {
		return err
	}
	troupev1.RegisterAgentServiceServer(w.grpc, steps)
	return nil
}

// openRegistrar opens the connection to the registry.
func (w *Worker) openRegistrar(self *identity.Source) error {
	if w.registrar = w.env.Registrar; w.registrar != nil {
		return nil
	}
	creds, err := w.cfg.EtcdSecurity.Credentials(w.cfg.Etcd, self, w.telemetry.Log)
	if err != nil {
		return err
	}
	etcd, err := etcdregistry.DialWith(creds, w.cfg.Etcd, w.telemetry.Log)
	if err != nil {
		return fmt.Errorf("--etcd: %w", err)
	}
	w.closers.Add(etcd)
	w.registrar = etcdregistry.New(etcd, w.telemetry.Log, etcdregistry.Config{OnDenied: w.etcdProvisioner(), TTL: w.cfg.registrationTTL})
	return nil
}

// etcdProvisioner returns a function that provisions the agent's user in etcd, or nil without the development CA.
// The owner of that CA can issue any identity, including root.
func (w *Worker) etcdProvisioner() func(context.Context) error {
	if w.cfg.Identity.DevCA == "" {
		return nil
	}
	return func(ctx context.Context) error {
		return etcdauth.ProvisionWithDevCA(ctx, w.cfg.Identity.DevCA, w.cfg.Etcd, w.agent.Name())
	}
}

// Close closes what New opened. It is for a Worker whose Run is never called, and may be called more than once.
func (w *Worker) Close() error { return w.closers.Close() }

// address returns the address at which the orchestrator reaches this worker.
func (w *Worker) address() string {
	if w.cfg.AdvertiseAddr != "" {
		return w.cfg.AdvertiseAddr
	}
	return w.grpcListener.Addr().String()
}

// Run serves until ctx ends, or until a Shutdown over RPC has terminated the instance. It calls ready once the
// instance is READY and registered. It returns an error if the start fails or the registration is rejected
// (LC-16).
func (w *Worker) Run(ctx context.Context, ready func()) error {
	defer func() { _ = w.Close() }()
	w.grpc.FollowBoard(w.board)
	w.telemetry.Log.Info("serving", zap.String("agent", w.agent.Name()), zap.String("instance", w.cfg.InstanceID),
		zap.Stringer("grpc", w.grpcListener.Addr()), zap.Stringer("http", w.httpListener.Addr()), zap.String("version", process.Version()))
	return process.Run(ctx, w.telemetry.Log, ready,
		probe.ServerPart(w.httpListener, w.board.Handler(w.telemetry.MetricsHandler)),
		w.grpc.ProcessPart(w.grpcListener, time.Second), // the instance drains its steps before this port closes
		probe.DependencyPart(w.board, w.telemetry.Log, w.memory, false),
		w.instancePart(),
	)
}

// instancePart returns the part that runs the instance: it registers, starts and finally drains it.
func (w *Worker) instancePart() process.Part {
	return process.Part{Name: "instance", Grace: w.cfg.Drain + shutdownGrace, Run: func(ctx context.Context, ready func()) error {
		ctx = lifecycleserver.WithTransitionTrace(ctx)
		keeperCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
		rejected := make(chan error, 1)
		go func() {
			err := w.registrationKeeper.run(keeperCtx, ready)
			if err != nil { // no orchestrator could find the instance
				w.shutDownInstance(ctx, "the registration was rejected")
			}
			rejected <- err
		}()
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			w.logTransitions()
		}()
		err := w.runInstance(ctx)
		stop()
		<-logged
		return cmp.Or(<-rejected, err)
	}}
}

// logTransitions logs each transition of the instance until it has terminated (LC-38).
func (w *Worker) logTransitions() {
	for after := uint64(0); ; {
		transitions, status, changed, err := w.instance.Transitions(after)
		if err != nil { // the log is so slow that the instance no longer remembers all
			w.telemetry.Log.Warn("transitions were not logged", zap.Uint64("after_version", after), zap.Error(err))
			after = status.Version
			continue
		}
		for _, t := range transitions {
			after = t.Version
			w.telemetry.Log.Info("state changed", zap.String("from", string(t.From)), zap.String("to", string(t.To)), zap.String("reason", t.Reason),
				zap.String("caller", t.Caller), zap.String("trace", t.TraceID), zap.Duration("lasted", t.Lasted), zap.Uint64("version", t.Version))
		}
		if status.State == lifecycle.Terminated {
			return
		}
		<-changed
	}
}

// runInstance starts the instance and runs it until ctx ends or a Shutdown over RPC arrives. It returns the error
// of a failed start. An agent that keeps a failed start stays as it is until then (LC-11).
func (w *Worker) runInstance(ctx context.Context) error {
	const reason = "the process was asked to stop"
	stays := false
	err := w.instance.RunWith(ctx, w.cfg.Drain, reason, func(ctx context.Context, started error) error {
		stays = true
		w.auditLifecycle("startup", started)
		if started != nil {
			w.telemetry.Log.Error("the start failed; the instance keeps what it acquired until Shutdown", zap.Error(started))
		}
		w.registrationKeeper.awaitTerminated(ctx)
		w.shutDownInstance(ctx, reason)
		return nil
	})
	if !stays {
		w.auditLifecycle("startup", err)
	}
	if ctx.Err() == nil {
		return err
	}
	return nil // the stop may have come during the start
}

// shutDownInstance shuts the instance down and returns once it has terminated. Errors are recorded in the log.
func (w *Worker) shutDownInstance(ctx context.Context, reason string) {
	ended := w.instance.Status().State == lifecycle.Terminated // a caller shut it down, which the audit log already records
	err := w.instance.Shutdown(context.WithoutCancel(ctx), w.cfg.Drain, reason)
	if !ended {
		w.auditLifecycle("shutdown", err)
	}
}

// auditLifecycle records in the audit log a start or shutdown that the worker made on its own, without a caller
// (guarantee S19).
func (w *Worker) auditLifecycle(action string, err error) {
	result := "ok"
	if err != nil {
		result = cmp.Or(string(failure.ModeOf(err)), "failed")
	}
	w.telemetry.Audit.Record(audit.Entry{Kind: audit.Lifecycle, Actor: "worker " + w.agent.Name(), Action: action, Object: w.cfg.InstanceID, Result: result})
}

// shutdownGrace bounds a shutdown beyond its drain time: two hooks and the forced end.
const shutdownGrace = 15 * time.Second
