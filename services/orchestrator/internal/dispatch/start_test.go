package dispatch

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// unstartedWorker is a worker that is registered but not started yet.
type unstartedWorker struct {
	troupev1.UnimplementedLifecycleServiceServer
	troupev1.UnimplementedAgentServiceServer
	starts  atomic.Int32
	started chan error // what a Startup returns
	isUp    atomic.Bool
}

func (u *unstartedWorker) Startup(ctx context.Context, _ *troupev1.StartupRequest) (*troupev1.StartupResponse, error) {
	u.starts.Add(1)
	select {
	case err := <-u.started:
		u.isUp.Store(err == nil)
		return &troupev1.StartupResponse{}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (u *unstartedWorker) ExecuteStep(_ *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepServer) error {
	if !u.isUp.Load() {
		return failure.New(failure.AgentState, "test", "not started")
	}
	return completeStep(stream)
}

func newUnstartedWorker(t *testing.T, id string) (*unstartedWorker, registry.Instance) {
	t.Helper()
	s := &unstartedWorker{started: make(chan error, 1)}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	require.NoError(t, err)
	troupev1.RegisterAgentServiceServer(server, s)
	troupev1.RegisterLifecycleServiceServer(server, s)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	in := instance(id, lis.Addr().String(), 16)
	in.State, in.Incarnation = lifecycle.Uninitialized, 1
	return s, in
}

// Contract C-7.
func TestDispatcher_StartsAnInstanceOnceForAllWaitingSteps(t *testing.T) {
	s, in := newUnstartedWorker(t, "1")
	r := newDispatcherFixture(t, testTimeout, in)
	t.Cleanup(r.Close)
	var running sync.WaitGroup
	errs := make([]error, 8)
	waiting := make(chan struct{}, len(errs))
	for i := range errs {
		running.Go(func() {
			h := new(callRecorder).handler()
			h.OnWaiting = func(string, bool) error { waiting <- struct{}{}; return nil }
			_, errs[i] = r.Execute(t.Context(), stepRequest(), nil, h)
		})
	}
	for range errs {
		receive(t, waiting)
	}
	s.started <- nil
	running.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
	require.NoError(t, err, "the registry says UNINITIALIZED still")
	require.EqualValues(t, 1, s.starts.Load())
}

func TestDispatcher_StartsNoInstanceWhileAnotherIsReady(t *testing.T) {
	s, in := newUnstartedWorker(t, "1")
	_, address := serveAgent(t, completeStep)
	r := newDispatcherFixture(t, testTimeout, in, instance("2", address, 4))
	t.Cleanup(r.Close)
	for range 4 {
		var h callRecorder
		_, err := r.Execute(t.Context(), stepRequest(), nil, h.handler())
		require.NoError(t, err)
		require.Equal(t, []string{"2"}, h.started)
	}
	require.Zero(t, s.starts.Load())
}

func TestDispatcher_DoesNotRepeatAFailedStart(t *testing.T) {
	s, in := newUnstartedWorker(t, "1")
	s.started <- failure.New(failure.ResourceTool, "test", "its tool is broken")
	r := newDispatcherFixture(t, 300*time.Millisecond, in)
	t.Cleanup(r.Close)
	for range 2 {
		_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
		require.Equal(t, failure.NoWorker, failure.ModeOf(err), "%v", err)
		require.ErrorContains(t, err, "none is ready: its tool is broken")
	}
	require.EqualValues(t, 1, s.starts.Load())

	in.Incarnation++ // it has restarted
	r.cache.Apply(registry.Update{Put: &in})
	s.started <- nil
	_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
	require.NoError(t, err)
	require.EqualValues(t, 2, s.starts.Load())
}

// Close stops waiting for an instance that is starting. No goroutine leaks.
func TestDispatcher_CloseStopsRunningStarts(t *testing.T) {
	s, in := newUnstartedWorker(t, "1")
	r := newDispatcherFixture(t, 200*time.Millisecond, in)
	_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
	require.ErrorContains(t, err, "none is ready: the instance is still starting")
	require.EqualValues(t, 1, s.starts.Load())
	r.Close()
}
