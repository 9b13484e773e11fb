// Package conformancehost implements the worker side of the conformance kit: a worker under test that starts
// instances of a test agent on request.
package conformancehost

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/internal/worker/lifecycleserver"
	"github.com/troupe-dev/troupe/internal/worker/stepserver"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Host is a worker that runs with --conformance. For the conformance kit it starts instances of a test agent, each
// on its own port of the host's gRPC address. It registers nothing, and uses plain text whatever identity the
// worker has.
type Host struct {
	cfg       worker.Config
	telemetry *telemetry.Telemetry
	grpc      *rpc.Server
	listener  net.Listener

	troupev1.UnimplementedConformanceServiceServer
	mu        sync.Mutex
	instances map[string]*hostedInstance
	closed    bool
}

// Serve creates a host and runs it until ctx ends.
func Serve(ctx context.Context, t *telemetry.Telemetry, cfg worker.Config) error {
	h, err := NewHost(t, cfg)
	if err != nil {
		return err
	}
	return h.Run(ctx, func() {})
}

// NewHost opens the port of a host. The caller must then call Run.
func NewHost(t *telemetry.Telemetry, cfg worker.Config) (*Host, error) {
	lis, err := rpc.Listen("--grpc-addr", cfg.GRPCAddr, identity.Config{InsecurePlaintext: cfg.Identity.InsecurePlaintext}.CheckAddress)
	if err != nil {
		return nil, err
	}
	server, err := rpc.NewServer(t, rpc.Config{Reflection: true})
	if err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	h := &Host{cfg: cfg, telemetry: t, grpc: server, listener: lis, instances: map[string]*hostedInstance{}}
	troupev1.RegisterConformanceServiceServer(server, h)
	return h, nil
}

// Addr returns the address of the host.
func (h *Host) Addr() string { return h.listener.Addr().String() }

// Run serves until ctx ends, and then closes every remaining instance.
func (h *Host) Run(ctx context.Context, ready func()) error {
	h.telemetry.Log.Info("serving the conformance kit; this worker takes no turns", zap.String("grpc", h.Addr()))
	h.grpc.SetServing(true)
	err := process.Run(ctx, h.telemetry.Log, ready, h.grpc.ProcessPart(h.listener, 0))
	h.mu.Lock()
	h.closed = true
	left := h.instances
	h.instances = map[string]*hostedInstance{}
	h.mu.Unlock()
	for _, in := range left {
		in.close()
	}
	return err
}

// MakeInstance implements troupev1.ConformanceServiceServer.
func (h *Host) MakeInstance(_ context.Context, req *troupev1.MakeInstanceRequest) (*troupev1.MakeInstanceResponse, error) {
	id := "conformance-" + uuid.NewString()[:8]
	in, err := h.serveInstance(id, req)
	if err != nil {
		return nil, failure.New(failure.SystemNetwork, "conformance.MakeInstance", "the instance cannot be served; see the log of the host").Because(err)
	}
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.instances[id] = in
	}
	h.mu.Unlock()
	if closed {
		in.close()
		return nil, failure.New(failure.InstanceDraining, "conformance.MakeInstance", "the host is stopping")
	}
	return &troupev1.MakeInstanceResponse{InstanceId: id, Address: in.address, Agent: testAgentName}, nil
}

// DropInstance implements troupev1.ConformanceServiceServer.
func (h *Host) DropInstance(_ context.Context, req *troupev1.DropInstanceRequest) (*troupev1.DropInstanceResponse, error) {
	h.mu.Lock()
	in, ok := h.instances[req.GetInstanceId()]
	delete(h.instances, req.GetInstanceId())
	h.mu.Unlock()
	if ok {
		in.close()
	}
	return &troupev1.DropInstanceResponse{}, nil
}

// hostedInstance is a running instance of the test agent, with its server.
type hostedInstance struct {
	address  string
	instance *lifecycle.Instance
	memory   *grpc.ClientConn
	release  chan struct{} // closed by close, so that hanging hooks return
	stop     context.CancelFunc
	served   sync.WaitGroup
}

func (h *Host) serveInstance(id string, req *troupev1.MakeInstanceRequest) (*hostedInstance, error) {
	a, err := newTestAgent(int(req.GetCapacity()))
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(h.Addr())
	if err != nil {
		return nil, err
	}
	lis, err := rpc.Listen("conformance", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	in := &hostedInstance{address: lis.Addr().String(), release: make(chan struct{})}
	in.instance = lifecycle.New(lifecycle.Config{
		Capacity: int(req.GetCapacity()), StartupTimeout: req.GetStartupTimeout().AsDuration(),
		RetryOnFailure: req.GetMaxRetries() > 0, MaxRetries: int(req.GetMaxRetries()), KeepFailed: req.GetKeepFailed(),
		Start: in.hookFor(req.GetStartup()), Stop: in.hookFor(req.GetShutdown()),
	})
	quiet := telemetry.FromLogger(h.telemetry.Log.Named(id).WithOptions(zap.IncreaseLevel(zap.ErrorLevel))) // the kit causes most errors on purpose
	if in.memory, err = rpc.Dial(req.GetMemoryAddress(), quiet, troupev1.MemoryService_ServiceDesc.ServiceName); err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	server, err := rpc.NewServer(quiet, rpc.Config{Reflection: true, Internal: true})
	if err != nil {
		return nil, errors.Join(err, lis.Close(), in.memory.Close())
	}
	troupev1.RegisterLifecycleServiceServer(server, &lifecycleserver.Server{
		Instance: in.instance, ID: id, Agent: a.Name(), Version: a.Version(), DefaultDrain: lifecycle.DefaultDrainTimeout, State: a.State(),
		Instructions: a.Instructions(),
	})
	steps, err := stepserver.New(quiet, a, in.instance, id, memoryrpc.New(in.memory))
	if err != nil {
		return nil, errors.Join(err, lis.Close(), in.memory.Close())
	}
	troupev1.RegisterAgentServiceServer(server, steps)
	board := probe.NewBoard(worker.ConditionLifecycle)
	server.FollowBoard(board)

	ctx, stop := context.WithCancel(context.Background())
	in.stop = stop
	in.served.Go(func() { worker.ShowReadiness(ctx, in.instance, board) })
	in.served.Go(func() { _ = server.ProcessPart(lis, 0).Run(ctx, func() {}) }) // it fails only if its listener is closed
	return in, nil
}

// slowHookTime is how long a hook with HOOK_BEHAVIOR_SLOW takes.
const slowHookTime = 300 * time.Millisecond

// hookFor returns a hook with the given behavior. A hanging hook ignores its context.
func (in *hostedInstance) hookFor(b troupev1.HookBehavior) func(context.Context) error {
	failed := failure.New(failure.ResourceTool, "conformance", "the hook was told to fail")
	failing := func(yes bool) error {
		if yes {
			return failed
		}
		return nil
	}
	tries := 0
	return func(ctx context.Context) error {
		tries++
		switch b {
		case troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL:
			return failed
		case troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL_ONCE:
			return failing(tries <= 1)
		case troupev1.HookBehavior_HOOK_BEHAVIOR_FAIL_TWICE:
			return failing(tries <= 2)
		case troupev1.HookBehavior_HOOK_BEHAVIOR_PANIC:
			panic("the hook was told to panic") //nolint:forbidigo // the kit tests panics
		case troupev1.HookBehavior_HOOK_BEHAVIOR_HANG:
			<-in.release
			return nil
		case troupev1.HookBehavior_HOOK_BEHAVIOR_SLOW:
			return parseAndSleep(ctx, slowHookTime.String())
		default:
			return nil
		}
	}
}

// close shuts the instance down and waits until all of its goroutines have ended.
func (in *hostedInstance) close() {
	close(in.release)
	_ = in.instance.Shutdown(context.Background(), 0, "dropped")
	in.stop()
	in.served.Wait()
	_ = in.memory.Close()
}
