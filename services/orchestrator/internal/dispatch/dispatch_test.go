package dispatch

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc/connectivity"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/test/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait in these tests. It is far longer than any wait should take.
const testTimeout = 30 * time.Second

// dispatcherFixture is a dispatcher with an instance cache and a connection pool.
type dispatcherFixture struct {
	*Dispatcher
	cache     *instances.Cache
	pool      *connection.Pool
	telemetry *telemetry.Telemetry
}

func newDispatcherFixture(t *testing.T, wait time.Duration, known ...registry.Instance) *dispatcherFixture {
	t.Helper()
	r := &dispatcherFixture{telemetry: telemetry.Discard()}
	r.pool = connection.NewPool(r.telemetry, rpc.Dial)
	t.Cleanup(r.pool.Close)
	r.cache = instances.New(zap.NewNop(), func(_ bool, addresses map[string]bool) { r.pool.CloseExcept(addresses) })
	r.cache.Apply(registry.Update{List: &known})
	r.Dispatcher = New(r.cache, r.pool, wait)
	return r
}

// instance returns an instance of agent a.
func instance(id, address string, capacity int) registry.Instance {
	return registry.Instance{ID: id, Agent: "a", Address: address, State: lifecycle.Ready, Capacity: capacity}
}

// agentServer is a fake worker that executes each step with script.
type agentServer struct {
	troupev1.UnimplementedAgentServiceServer
	script func(troupev1.AgentService_ExecuteStepServer) error

	mu    sync.Mutex
	calls int
}

func (s *agentServer) ExecuteStep(_ *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepServer) error {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	return s.script(stream)
}

func (s *agentServer) callCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// serveAgent runs a fake worker until the test ends, and returns it with its address.
func serveAgent(t *testing.T, script func(troupev1.AgentService_ExecuteStepServer) error) (*agentServer, string) {
	t.Helper()
	s := &agentServer{script: script}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	require.NoError(t, err)
	troupev1.RegisterAgentServiceServer(server, s)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return s, lis.Addr().String()
}

// completeStep accepts the step and sends its result.
func completeStep(stream troupev1.AgentService_ExecuteStepServer) error {
	return errors.Join(stream.SendHeader(nil), sendResult(stream, "done"))
}

func sendResult(stream troupev1.AgentService_ExecuteStepServer, text string) error {
	return stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: &troupev1.StepResult{Step: 1, Agent: "a", Text: text}}})
}

// stepRequest returns a valid request.
func stepRequest() *troupev1.ExecuteStepRequest {
	message := &troupev1.Message{Role: troupev1.Role_ROLE_USER, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "hello"}}}}
	return &troupev1.ExecuteStepRequest{
		TraceId: "0af7651916cd43dd8448eb211c80319c", SessionId: "s", TurnId: "t", Turn: 1, Step: 1, Attempt: 1, Epoch: 1,
		Agent: "a", History: []*troupev1.Message{message}, BaseSequence: 1, Goal: "g", Task: "g",
	}
}

// callRecorder records the calls of a handler. Only one goroutine may use it.
type callRecorder struct {
	waiting []string
	started []string
	events  int
	onEvent func() error
}

func (c *callRecorder) handler() Handler {
	return Handler{
		OnWaiting: func(agent string, paused bool) error {
			if paused {
				agent += " (paused)"
			}
			c.waiting = append(c.waiting, agent)
			return nil
		},
		OnStarted: func(in registry.Instance) error { c.started = append(c.started, in.ID); return nil },
		OnEvent: func(*troupev1.Event) error {
			c.events++
			if c.onEvent == nil {
				return nil
			}
			return c.onEvent()
		},
	}
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(testTimeout)
	defer timer.Stop()
	select {
	case v = <-from:
	case <-timer.C:
		require.FailNow(t, "timed out waiting")
	}
	return v
}

// An instance that rejects a step has not begun it. So the dispatcher tries the next one.
func TestDispatcher_TriesTheNextInstanceAfterARejection(t *testing.T) {
	for _, mode := range []failure.Mode{failure.InstanceFull, failure.InstancePaused, failure.InstanceDraining, failure.AgentState} {
		t.Run(string(mode), func(t *testing.T) {
			rejecting, first := serveAgent(t, func(troupev1.AgentService_ExecuteStepServer) error { return failure.New(mode, "test", "no") })
			taking, second := serveAgent(t, completeStep)
			r := newDispatcherFixture(t, testTimeout, instance("1", first, 4), instance("2", second, 4))
			var h callRecorder
			got, err := r.Execute(t.Context(), stepRequest(), nil, h.handler())
			require.NoError(t, err)
			require.Equal(t, "done", got.GetText())
			require.Equal(t, []string{"2"}, h.started)
			require.Empty(t, h.waiting)
			require.Equal(t, 1, rejecting.callCount())
			require.Equal(t, 1, taking.callCount())
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		_, second := serveAgent(t, completeStep)
		r := newDispatcherFixture(t, testTimeout, instance("1", loopback.Address(t), 4), instance("2", second, 4))
		var h callRecorder
		_, err := r.Execute(t.Context(), stepRequest(), nil, h.handler())
		require.NoError(t, err)
		require.Equal(t, []string{"2"}, h.started)
	})
}

// Req: OC-6
func TestDispatcher_FailsWhenNoInstanceAcceptsTheStep(t *testing.T) {
	const wait = time.Second
	rejecting, address := serveAgent(t, func(troupev1.AgentService_ExecuteStepServer) error {
		return failure.New(failure.InstanceFull, "test", "full")
	})
	for name, c := range map[string]struct {
		known   []registry.Instance
		says    string
		waiting []string
	}{
		"none":     {nil, "none is ready", []string{"a"}},
		"rejected": {[]registry.Instance{instance("1", address, 4)}, "all are at capacity", nil},
		"away":     {[]registry.Instance{instance("1", loopback.Address(t), 4)}, "all are at capacity", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDispatcherFixture(t, wait, c.known...)
			var h callRecorder
			began := time.Now()
			_, err := r.Execute(t.Context(), stepRequest(), nil, h.handler())
			require.Equal(t, failure.NoWorker, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, "no instance of agent a took the step within 1s: "+c.says)
			require.False(t, failure.NoWorker.Retryable())
			require.GreaterOrEqual(t, time.Since(began), wait)
			require.Equal(t, c.waiting, h.waiting, "at most once")
			require.Empty(t, h.started)
		})
	}
	require.Greater(t, rejecting.callCount(), 1, "it was asked again")
}

// A step of a paused agent waits longer than others, until the agent is resumed or the turn has no time left.
//
// Req: OC-6
func TestDispatcher_WaitsForAPausedInstance(t *testing.T) {
	_, address := serveAgent(t, completeStep)
	paused := instance("1", address, 4)
	paused.State = lifecycle.Paused
	r := newDispatcherFixture(t, 50*time.Millisecond, paused)
	waits, result := make(chan bool, 1), make(chan error, 1)
	run := func(ctx context.Context) {
		h := (&callRecorder{}).handler()
		h.OnWaiting = func(_ string, paused bool) error { waits <- paused; return nil }
		_, err := r.Execute(ctx, stepRequest(), nil, h)
		result <- err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, resumes := range []bool{false, true} {
		go run(ctx)
		require.True(t, <-waits, "it says that the agent is paused")
		var other callRecorder
		req := stepRequest()
		req.Agent = "b"
		_, err := r.Execute(t.Context(), req, nil, other.handler())
		require.True(t, failure.Is(err, failure.NoWorker), "%v", err) // now the step of the paused agent has waited as long, too
		require.Empty(t, result)
		if !resumes {
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
			ctx = t.Context()
			continue
		}
		resumed := paused
		resumed.State = lifecycle.Ready
		r.cache.Apply(registry.Update{Put: &resumed})
		require.NoError(t, <-result)
	}
}

func TestDispatcher_UsesAnInstanceThatRegistersWhileItWaits(t *testing.T) {
	_, address := serveAgent(t, completeStep)
	r := newDispatcherFixture(t, testTimeout)
	var h callRecorder
	handler := h.handler()
	handler.OnWaiting = func(string, bool) error {
		late := instance("late", address, 1)
		r.cache.Apply(registry.Update{Put: &late})
		return nil
	}
	_, err := r.Execute(t.Context(), stepRequest(), nil, handler)
	require.NoError(t, err)
	require.Equal(t, []string{"late"}, h.started)
}

// Steps wait in the queue while all instances are known to be full. No instance gets a call that it would reject.
func TestDispatcher_QueuesStepsBeyondTheCapacity(t *testing.T) {
	const steps, capacity = 8, 2
	var mu sync.Mutex
	running, most := 0, 0
	add := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		running += n
		most = max(most, running)
	}
	entered, release := make(chan struct{}, steps), make(chan struct{}, steps)
	worker, address := serveAgent(t, func(stream troupev1.AgentService_ExecuteStepServer) error {
		add(1)
		entered <- struct{}{}
		<-release
		add(-1) // before the reply frees the slot
		return completeStep(stream)
	})
	r := newDispatcherFixture(t, testTimeout, instance("1", address, capacity))
	errs := make(chan error, steps)
	for range steps {
		go func() {
			_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
			errs <- err
		}()
	}
	for range steps {
		receive(t, entered)
		release <- struct{}{}
	}
	for range steps {
		require.NoError(t, receive(t, errs))
	}
	require.Equal(t, steps, worker.callCount(), "no call was rejected")
	mu.Lock()
	defer mu.Unlock()
	require.LessOrEqual(t, most, capacity)
}

// A step whose stream breaks after the header may have had effects. So no other instance is tried.
func TestDispatcher_DoesNotRetryAnAcceptedStep(t *testing.T) {
	for name, c := range map[string]struct {
		script func(troupev1.AgentService_ExecuteStepServer) error
		mode   failure.Mode
		says   string
	}{
		"no result": {
			func(s troupev1.AgentService_ExecuteStepServer) error { return s.SendHeader(nil) },
			failure.AgentContract, "instance 1 of agent a ended the step without a result",
		},
		"a result beyond its limits": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), sendResult(s, strings.Repeat("a", 256<<10+1)))
			},
			failure.AgentContract, "instance 1 of agent a broke the contract: result.text: must be at most 262144 bytes",
		},
		"network": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), failure.New(failure.SystemNetwork, "test", "gone"))
			}, failure.SystemNetwork, "instance 1 of agent a went away while it worked",
		},
		"no header, no rejection": {
			func(troupev1.AgentService_ExecuteStepServer) error { return errors.New("broken") },
			failure.Unknown, "internal error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, first := serveAgent(t, c.script)
			other, second := serveAgent(t, completeStep)
			r := newDispatcherFixture(t, testTimeout, instance("1", first, 4), instance("2", second, 4))
			_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
			require.Equal(t, c.mode, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
			require.Zero(t, other.callCount())
		})
	}
}

// A handler error means that the turn no longer needs the step. So the call to the worker is cancelled.
func TestDispatcher_HandlerErrorCancelsTheStep(t *testing.T) {
	cancelled := make(chan struct{})
	_, address := serveAgent(t, func(stream troupev1.AgentService_ExecuteStepServer) error {
		defer close(cancelled)
		err := errors.Join(stream.SendHeader(nil), stream.Send(&troupev1.ExecuteStepResponse{
			Item: &troupev1.ExecuteStepResponse_Event{Event: &troupev1.Event{}},
		}))
		if err == nil {
			<-stream.Context().Done()
		}
		return err
	})
	r := newDispatcherFixture(t, testTimeout, instance("1", address, 4))
	enough := errors.New("enough")
	h := callRecorder{onEvent: func() error { return enough }}
	_, err := r.Execute(t.Context(), stepRequest(), nil, h.handler())
	require.ErrorIs(t, err, enough)
	receive(t, cancelled)
}

// Execute returns either a result or an error, no matter when the context ends.
func TestDispatcher_FailsWhenTheContextHasAlreadyEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := newDispatcherFixture(t, testTimeout)
	got, err := r.Execute(ctx, stepRequest(), nil, new(callRecorder).handler())
	require.Nil(t, got)
	require.ErrorIs(t, err, context.Canceled)
}

func TestDispatcher_StopsWaitingWhenItsContextEnds(t *testing.T) {
	r := newDispatcherFixture(t, testTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	var h callRecorder
	handler := h.handler()
	handler.OnWaiting = func(string, bool) error { cancel(); return nil }
	_, err := r.Execute(ctx, stepRequest(), nil, handler)
	require.ErrorIs(t, err, context.Canceled)
}

// A step waits longer than its timeout while an instance works, because a slot will become free. Once no instance
// works, the timeout applies.
func TestDispatcher_WaitsWhileAnInstanceWorks(t *testing.T) {
	const wait = time.Second
	working, release := make(chan struct{}, 1), make(chan struct{})
	_, address := serveAgent(t, func(s troupev1.AgentService_ExecuteStepServer) error {
		if err := s.SendHeader(nil); err != nil {
			return err
		}
		working <- struct{}{}
		<-release
		return sendResult(s, "done")
	})
	busy := instance("1", address, 1)
	r := newDispatcherFixture(t, testTimeout, busy)
	hasty := r.WithPolicy(selection.Policy{}) // a dispatcher with a short timeout; the first step counts as running however long ago it began
	hasty.instanceTimeout = wait
	ended := make(chan error, 2)
	execute := func(d *Dispatcher) {
		_, err := d.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
		ended <- err
	}
	go execute(r.Dispatcher)
	receive(t, working)
	go execute(hasty)
	time.AfterFunc(wait+wait/10, func() { close(release) }) // just after one timeout, and long before the next would pass
	require.NoError(t, receive(t, ended))
	require.NoError(t, receive(t, ended))

	_, err := hasty.Execute(t.Context(), stepRequest(), []registry.Instance{busy}, new(callRecorder).handler())
	require.Equal(t, failure.NoWorker, failure.ModeOf(err), "%v", err)
}

// The connection to a draining worker stays open until its last step ends, although the worker is no longer
// registered.
func TestPool_ClosesAConnectionAfterItsLastStep(t *testing.T) {
	working, release := make(chan struct{}), make(chan struct{})
	_, address := serveAgent(t, func(stream troupev1.AgentService_ExecuteStepServer) error {
		close(working)
		<-release
		return completeStep(stream)
	})
	r := newDispatcherFixture(t, testTimeout, instance("1", address, 1))
	conn, done, err := r.pool.Get(t.Context(), registry.Instance{Agent: "a", Address: address})
	require.NoError(t, err)
	done()
	ended := make(chan error, 1)
	go func() {
		_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
		ended <- err
	}()
	receive(t, working)
	r.cache.Apply(registry.Update{Delete: &registry.Key{Agent: "a", ID: "1"}})
	require.Equal(t, connectivity.Ready, conn.GetState())
	close(release)
	require.NoError(t, receive(t, ended))
	require.Equal(t, connectivity.Shutdown, conn.GetState())
}
