package operate

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait in these tests. It is far longer than any wait should take.
const testTimeout = 30 * time.Second

// operatorFixture is an operator with an in-memory registry that can reject writes or lose answers.
type operatorFixture struct {
	*Operator
	registry      *inmem.Registry
	rejectsWrites atomic.Bool // SetDesired fails and records nothing
	losesAnswers  atomic.Bool // SetDesired fails, but has recorded all desired states but the last (a single one is recorded)
	onSetDesired  func()      // called after SetDesired succeeded (may be nil)
	stop          func()
}

func newOperatorFixture(t *testing.T) *operatorFixture {
	t.Helper()
	r := &operatorFixture{registry: inmem.New()}
	pool := connection.NewPool(telemetry.Discard(), rpc.Dial)
	t.Cleanup(pool.Close)
	cache := instances.New(zap.NewNop(), func(_ bool, addresses map[string]bool) { pool.CloseExcept(addresses) })
	r.Operator = New(cache, &unreliableRegistry{r.registry, r}, pool, zap.NewNop())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var following sync.WaitGroup
	for _, follow := range []func(context.Context) error{r.Run, func(ctx context.Context) error { return cache.Watch(ctx, r.registry) }} {
		following.Go(func() {
			if err := follow(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	r.stop = func() { cancel(); following.Wait() }
	t.Cleanup(r.stop)
	return r
}

// unreliableRegistry fails SetDesired as the fixture says: it rejects the write, or records a part of it and loses
// the answer.
type unreliableRegistry struct {
	*inmem.Registry
	rig *operatorFixture
}

func (u *unreliableRegistry) SetDesired(ctx context.Context, desires ...registry.DesiredState) error {
	switch {
	case u.rig.rejectsWrites.Load():
		return failure.New(failure.SystemTimeout, "test", "away")
	case u.rig.losesAnswers.Load():
		_ = u.Registry.SetDesired(ctx, desires[:max(1, len(desires)-1)]...)
		return failure.New(failure.SystemTimeout, "test", "lost")
	}
	err := u.Registry.SetDesired(ctx, desires...)
	if u.rig.onSetDesired != nil {
		u.rig.onSetDesired()
	}
	return err
}

// worker serves the LifecycleService of one instance over real gRPC.
type worker struct {
	troupev1.UnimplementedLifecycleServiceServer
	instance     *lifecycle.Instance
	registration registry.Registration
	paused       chan struct{} // gets a value when a Pause begins
	losesAnswers atomic.Bool   // Pause succeeds, but its answer is lost
	id           string

	mu      sync.Mutex
	methods []string
}

// addWorker starts a worker, registers it as READY and waits until the cache knows it.
func (o *operatorFixture) addWorker(t *testing.T, agent, id string) *worker {
	t.Helper()
	w := &worker{paused: make(chan struct{}, 8), id: id}
	w.instance = lifecycle.New(lifecycle.Config{Capacity: 4, Leave: func(ctx context.Context) error { return w.registration.Close(ctx) }})
	require.NoError(t, w.instance.Startup(t.Context()))
	t.Cleanup(func() { _ = w.instance.Shutdown(context.WithoutCancel(t.Context()), 0, "the test ends") })
	o.register(t, w, agent, id, serve(t, w))
	return w
}

func (o *operatorFixture) register(t *testing.T, w *worker, agent, id, address string) {
	t.Helper()
	in := registrytest.NewInstance(agent, id)
	in.Address, in.State = address, lifecycle.Ready
	registration := registrytest.Register(t, o.registry, in)
	if w != nil {
		w.registration = registration
	}
	await(t, "it is in the cache", func() bool { return o.instances.Ready(agent) > 0 && o.awaitCached(in.Key()) })
}

func (o *operatorFixture) awaitCached(key registry.Key) bool {
	for _, in := range o.instances.Instances() {
		if in.Key() == key {
			return true
		}
	}
	return false
}

// routableIDs returns the ids of the instances that routing would use.
func (o *operatorFixture) routableIDs(agent string) map[string]bool {
	ids := map[string]bool{}
	list, _ := o.instances.List(agent)
	for _, in := range list.Instances {
		ids[in.ID] = true
	}
	return ids
}

// recordedState returns the desired state that the registry holds for an instance.
func (o *operatorFixture) recordedState(t *testing.T, agent, id string) registry.DesiredState {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var got registry.DesiredState
	require.NoError(t, o.registry.WatchDesiredStates(ctx, func(all map[registry.Key]registry.DesiredState) {
		got = all[registry.Key{Agent: agent, ID: id}]
		cancel()
	}))
	return got
}

func serve(t *testing.T, w *worker) string {
	t.Helper()
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	require.NoError(t, err)
	troupev1.RegisterLifecycleServiceServer(server, w)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return lis.Addr().String()
}

func (w *worker) recordCall(verb string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.methods = append(w.methods, verb)
}

// calls returns the methods that were called at the worker, in order.
func (w *worker) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.methods...)
}

func (w *worker) status() *troupev1.InstanceStatus {
	s := w.instance.Status()
	return &troupev1.InstanceStatus{
		State: instancewire.StateToProto(s.State), InFlight: int32(s.InFlight), Reason: s.Reason, Pausing: s.Pausing,
		InstanceId: w.id,
	}
}

func (w *worker) Startup(ctx context.Context, req *troupev1.StartupRequest) (*troupev1.StartupResponse, error) {
	w.recordCall("startup " + req.String())
	if req.IfStateVersion != nil {
		ctx = lifecycle.ContextIfVersion(ctx, req.GetIfStateVersion())
	}
	if err := w.instance.Startup(ctx); err != nil {
		return nil, err
	}
	return &troupev1.StartupResponse{Status: w.status()}, nil
}

func (w *worker) Pause(ctx context.Context, req *troupev1.PauseRequest) (*troupev1.PauseResponse, error) {
	w.recordCall("pause")
	w.paused <- struct{}{}
	if err := w.instance.Pause(ctx, req.GetReason()); err != nil {
		return nil, err
	}
	if w.losesAnswers.Load() {
		return nil, failure.New(failure.SystemNetwork, "test", "lost")
	}
	return &troupev1.PauseResponse{Status: w.status()}, nil
}

func (w *worker) Resume(ctx context.Context, req *troupev1.ResumeRequest) (*troupev1.ResumeResponse, error) {
	w.recordCall("resume")
	if err := w.instance.Resume(ctx, req.GetReason()); err != nil {
		return nil, err
	}
	return &troupev1.ResumeResponse{Status: w.status()}, nil
}

func (w *worker) Shutdown(ctx context.Context, req *troupev1.ShutdownRequest) (*troupev1.ShutdownResponse, error) {
	w.recordCall("shutdown")
	if req.IfStateVersion != nil {
		ctx = lifecycle.ContextIfVersion(ctx, req.GetIfStateVersion())
	}
	if err := w.instance.Shutdown(ctx, req.GetDrain().AsDuration(), req.GetReason()); err != nil {
		return nil, err
	}
	return &troupev1.ShutdownResponse{Status: w.status()}, nil
}

func (w *worker) GetState(context.Context, *troupev1.GetStateRequest) (*troupev1.GetStateResponse, error) {
	return &troupev1.GetStateResponse{Status: w.status()}, nil
}

func (w *worker) GetMetrics(context.Context, *troupev1.GetMetricsRequest) (*troupev1.GetMetricsResponse, error) {
	return &troupev1.GetMetricsResponse{TotalRequests: w.instance.Metrics().TotalRequests}, nil
}

// await polls until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "timed out waiting", what)
		}
	}
}
