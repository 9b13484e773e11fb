package dispatch

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/breakers"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// breakerFixture is a dispatcher in a synctest bubble, which has its own clock. Each of its workers fails or
// succeeds as its faultyWorker is set.
type breakerFixture struct {
	*dispatcherFixture
	instances []registry.Instance
	workers   map[string]*faultyWorker
}

// faultyWorker is a worker that fails each step while an error is set.
type faultyWorker struct {
	agentServer
	err atomic.Pointer[func(troupev1.AgentService_ExecuteStepServer) error]
}

func newBreakerFixture(t *testing.T, wait time.Duration, ids ...string) *breakerFixture {
	t.Helper()
	h := &breakerFixture{dispatcherFixture: &dispatcherFixture{}, workers: map[string]*faultyWorker{}}
	listeners := map[string]*bufconn.Listener{}
	h.pool = connection.NewPool(telemetry.Discard(), func(target string, _ *telemetry.Telemetry, _ ...string) (*grpc.ClientConn, error) {
		return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) { return listeners[at].DialContext(ctx) }))
	})
	for _, id := range ids {
		p := &faultyWorker{}
		p.script = func(s troupev1.AgentService_ExecuteStepServer) error {
			if err := p.err.Load(); err != nil {
				return (*err)(s)
			}
			return completeStep(s)
		}
		server := grpc.NewServer()
		troupev1.RegisterAgentServiceServer(server, p)
		listener, ended := bufconn.Listen(1<<16), make(chan error, 1)
		listeners[id] = listener
		go func() { ended <- server.Serve(listener) }()
		t.Cleanup(func() { server.Stop(); require.NoError(t, <-ended) })
		h.workers[id] = p
		h.instances = append(h.instances, instance(id, id, 4))
	}
	t.Cleanup(h.pool.Close)
	h.cache = instances.New(zap.NewNop(), func(bool, map[string]bool) {})
	h.cache.Apply(registry.Update{List: &h.instances})
	h.Dispatcher = New(h.cache, h.pool, wait)
	return h
}

// setError makes a worker fail all later steps with err (nil makes it succeed).
func (b *breakerFixture) setError(id string, err func(troupev1.AgentService_ExecuteStepServer) error) {
	if err == nil {
		b.workers[id].err.Store(nil)
		return
	}
	b.workers[id].err.Store(&err)
}

// step runs one step at the instance. It returns the routing decision and the outcome.
func (b *breakerFixture) step(t *testing.T, id string) (d selection.Decision, err error) {
	t.Helper()
	handler, _ := choiceHandler(t, &d)
	_, err = b.WithPolicy(selection.Policy{Strategy: selection.Manual, Instance: id}).Execute(t.Context(), stepRequest(), nil, handler)
	return d, err
}

func failWithNetworkError(s troupev1.AgentService_ExecuteStepServer) error {
	return errors.Join(s.SendHeader(nil), grpcfailure.ToStatus(failure.New(failure.SystemNetwork, "test", "gone")))
}

// Req: OC-34
func TestBreaker_OpensAfterThreeFailuresAndClosesAfterATrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBreakerFixture(t, time.Second, "1", "2")
		h.setError("1", failWithNetworkError)
		lose := func() { _, err := h.step(t, "1"); require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err) }
		count := h.workers["1"].callCount

		lose()
		lose()
		h.setError("1", nil)
		_, err := h.step(t, "1")
		require.NoError(t, err, "which begins the count anew")
		require.Empty(t, h.breakers.Failures("a"))

		h.setError("1", failWithNetworkError)
		lose()
		lose()
		lose()
		opened, asked := time.Now(), count()
		var d selection.Decision
		handler, recorder := choiceHandler(t, &d)
		for range 4 { // by round robin
			_, err = h.Execute(t.Context(), stepRequest(), nil, handler)
			require.NoError(t, err)
			require.Equal(t, "2", recorder.started[0])
			recorder.started = nil
		}
		require.Equal(t, "2 is the only one that can take it; 1 failed its last steps", d.Reason)
		require.Equal(t, selection.BreakerOpen, d.Rejected[0].Availability)
		require.Equal(t, "instance 1 of agent a went away while it worked", d.Rejected[0].Detail)
		require.Equal(t, d, selection.Decide(d.Input), "deciding again gives the same decision")

		d, err = h.step(t, "1")
		require.True(t, failure.Is(err, failure.NoWorker), "%v", err)
		require.ErrorContains(t, err, "the workflow names 1, which failed its last steps")
		require.Equal(t, asked, count(), "it was not asked")

		time.Sleep(time.Until(opened.Add(breaker.OpenDuration - time.Millisecond)))
		require.Equal(t, breakers.Open, h.breakers.Failures("a")[instances.IncarnationOf(h.instances[0])].Status)
		time.Sleep(2 * time.Millisecond)
		lose() // fails the trial
		_, err = h.step(t, "1")
		require.True(t, failure.Is(err, failure.NoWorker), "%v", err)
		require.Equal(t, asked+1, count())

		time.Sleep(breaker.OpenDuration)
		h.setError("1", nil)
		for range 3 {
			_, err = h.step(t, "1")
			require.NoError(t, err)
		}
		require.Empty(t, h.breakers.Failures("a"))
	})
}

// While one step is the breaker's trial, the instance gets no other step.
func TestBreaker_AllowsOneTrialAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBreakerFixture(t, 20*time.Second, "1")
		h.setError("1", failWithNetworkError)
		for range breaker.MaxFailures {
			_, err := h.step(t, "1")
			require.Error(t, err)
		}
		asked, release := h.workers["1"].callCount(), make(chan struct{})
		h.setError("1", func(s troupev1.AgentService_ExecuteStepServer) error {
			err := s.SendHeader(nil)
			<-release
			return errors.Join(err, sendResult(s, "done"))
		})
		var steps sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs { // they wait, because there is no other instance
			steps.Go(func() { _, errs[i] = h.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler()) })
		}
		time.Sleep(breaker.OpenDuration + time.Second)
		require.Equal(t, asked+1, h.workers["1"].callCount())
		close(release)
		steps.Wait()
		require.NoError(t, errors.Join(errs...))
	})
}

// When the only instance is on trial, a step waits for the outcome of the trial, however long it takes.
func TestBreaker_StepWaitsForTheTrialOfTheOnlyInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBreakerFixture(t, time.Second, "1")
		h.setError("1", failWithNetworkError)
		for range breaker.MaxFailures {
			_, err := h.step(t, "1")
			require.Error(t, err)
		}
		time.Sleep(breaker.OpenDuration + time.Second)
		h.setError("1", func(s troupev1.AgentService_ExecuteStepServer) error {
			err := s.SendHeader(nil)
			time.Sleep(5 * time.Second)
			return errors.Join(err, sendResult(s, "done"))
		})
		var steps sync.WaitGroup
		defer steps.Wait()
		errs := make(chan error, 2)
		for range cap(errs) {
			steps.Go(func() {
				_, err := h.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
				errs <- err
			})
			synctest.Wait()
		}
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		require.Empty(t, h.breakers.Failures("a"))
	})
}

// When the handler of a trial panics, the slot is returned and another step may become the trial.
func TestBreaker_PanicInATrialAllowsAnotherTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBreakerFixture(t, time.Second, "1")
		h.setError("1", failWithNetworkError)
		for range breaker.MaxFailures {
			_, err := h.step(t, "1")
			require.Error(t, err)
		}
		time.Sleep(breaker.OpenDuration + time.Second)
		h.setError("1", nil)
		handler := new(callRecorder).handler()
		handler.OnStarted = func(registry.Instance) error { panic("broken") }
		require.Panics(t, func() { _, _ = h.Execute(t.Context(), stepRequest(), nil, handler) })
		list, _ := h.cache.List("a")
		require.Zero(t, h.queue.Candidates("a", list)[0].InFlight)
		require.False(t, h.queue.HasRunningStep("a", list, func(selection.Candidate) bool { return true }))

		_, err := h.step(t, "1")
		require.NoError(t, err)
		require.Empty(t, h.breakers.Failures("a"))
	})
}

// Failures that the instance did not cause do not open its breaker. Simultaneous failures of all its steps count
// as one failure.
func TestBreaker_CountsOnlyFailuresOfTheInstance(t *testing.T) {
	outcome := func(mode failure.Mode) func(troupev1.AgentService_ExecuteStepServer) error {
		return func(s troupev1.AgentService_ExecuteStepServer) error { return failedResult(s, mode) }
	}
	rejection := func(mode failure.Mode) func(troupev1.AgentService_ExecuteStepServer) error {
		return func(troupev1.AgentService_ExecuteStepServer) error {
			return grpcfailure.ToStatus(failure.New(mode, "test", "no"))
		}
	}
	for name, c := range map[string]struct {
		err    func(troupev1.AgentService_ExecuteStepServer) error
		counts bool
	}{
		"lost":                       {failWithNetworkError, true},
		"no result":                  {func(s troupev1.AgentService_ExecuteStepServer) error { return s.SendHeader(nil) }, true},
		"disk":                       {outcome(failure.SystemDisk), true},
		"memory":                     {outcome(failure.SystemOOM), true},
		"internal error":             {rejection(failure.Unknown), true},
		"logic of the agent":         {outcome(failure.AgentLogic), false},
		"provider of the model":      {outcome(failure.ResourceAPI), false},
		"unknown error of the agent": {outcome(failure.Unknown), false},
		"draining in the step":       {outcome(failure.InstanceDraining), false},
		"fenced":                     {outcome(failure.Fenced), false},
		"full":                       {rejection(failure.InstanceFull), false},
		"paused":                     {rejection(failure.InstancePaused), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newBreakerFixture(t, 50*time.Millisecond, "1")
				h.setError("1", c.err)
				for range breaker.MaxFailures {
					_, _ = h.step(t, "1")
				}
				require.Equal(t, c.counts, h.breakers.Failures("a")[instances.IncarnationOf(h.instances[0])].Status == breakers.Open)
			})
		})
	}
	t.Run("all at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newBreakerFixture(t, time.Second, "1")
			h.setError("1", func(s troupev1.AgentService_ExecuteStepServer) error {
				err := s.SendHeader(nil)
				time.Sleep(time.Second)
				return errors.Join(err, grpcfailure.ToStatus(failure.New(failure.SystemNetwork, "test", "gone")))
			})
			var steps sync.WaitGroup
			for range 4 {
				steps.Go(func() { _, _ = h.step(t, "1") })
			}
			steps.Wait()
			require.Len(t, h.breakers.Failures("a"), 1)
			require.Equal(t, breakers.Closed, h.breakers.Failures("a")[instances.IncarnationOf(h.instances[0])].Status, "one connection broke")
		})
	})
}
