package worker_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// execute starts a step.
func (r *runningWorker) execute(ctx context.Context, t *testing.T, req *troupev1.ExecuteStepRequest) grpc.ServerStreamingClient[troupev1.ExecuteStepResponse] {
	t.Helper()
	stream, err := r.steps.ExecuteStep(ctx, req)
	require.NoError(t, err)
	return stream
}

// readStep reads the stream of a step to its end. The result must be its last item and occur only once.
func readStep(t *testing.T, stream grpc.ServerStreamingClient[troupev1.ExecuteStepResponse]) (events []*troupev1.Event, result *troupev1.StepResult) {
	t.Helper()
	for {
		item, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			require.NotNil(t, result, "the stream ended without a result")
			return events, result
		}
		require.NoError(t, err)
		require.Nil(t, result, "something comes after the result: %v", item)
		result = item.GetResult()
		if e := item.GetEvent(); e != nil {
			events = append(events, e)
		}
	}
}

// awaitHeaders waits until the stream has received its headers.
func awaitHeaders(t *testing.T, stream grpc.ServerStreamingClient[troupev1.ExecuteStepResponse]) {
	t.Helper()
	header, err := stream.Header()
	require.NoError(t, err)
	require.NotNil(t, header)
}

// zeroDrainTime is a drain time of zero.
var zeroDrainTime = durationpb.New(0)

const (
	stateReady = troupev1.InstanceState_INSTANCE_STATE_READY
	stateBusy  = troupev1.InstanceState_INSTANCE_STATE_BUSY
)

// Req: LC-27
func TestExecuteStep_CommitsBeforeItSendsTheResult(t *testing.T) {
	s := newWorkerEnv(t)
	wait := make(chan struct{})
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Reply{Deltas: []string{"Good ", "day."}, Wait: wait})})
	stream := r.execute(t.Context(), t, s.beginTurn(t, "a", "s1"))
	awaitHeaders(t, stream)
	status := r.status(t)
	require.Equal(t, stateBusy, status.GetState())
	require.EqualValues(t, 1, status.GetInFlight())
	require.Equal(t, lifecycle.Ready, s.registeredState(r), "a step does not change the registration")

	close(wait)
	events, result := readStep(t, stream)
	require.Nil(t, result.GetFailure())
	require.Equal(t, "Good day.", result.GetText())
	require.EqualValues(t, 1, result.GetStep())
	require.EqualValues(t, 2, result.GetSequence())
	require.NotEmpty(t, events)
	for _, e := range events {
		require.NotNil(t, e.GetTime())
	}
	stored, messages := s.storedSession(t, "s1")
	require.Equal(t, session.Ready, stored.State, "its commit closed the turn")
	require.Equal(t, "Good day.", messages[1].Text)
	require.Equal(t, "a", messages[1].Author)
	awaitCondition(t, "the instance is ready again", func() bool { return r.status(t).GetState() == stateReady })
}

// registeredState returns the worker's state in the registry once it is no longer INITIALIZING.
func (e *workerEnv) registeredState(r *runningWorker) lifecycle.State {
	e.Until(func() bool {
		return !slices.Contains([]lifecycle.State{"", lifecycle.Uninitialized, lifecycle.Initializing}, e.Known[r.registryKey()].State)
	})
	return e.Known[r.registryKey()].State
}

// Req: LC-26
func TestExecuteStep_RejectsBeforeItSendsHeaders(t *testing.T) {
	s := newWorkerEnv(t)
	resource := newGatedTool("gate")
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{resource}})
	req := s.beginTurn(t, "a", "s1")
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_INITIALIZING, r.status(t).GetState())
	err := rejectionError(t, r.execute(t.Context(), t, req))
	require.Equal(t, failure.AgentState, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "initializing")
	require.ErrorContains(t, err, "ready")
	resource.startResult <- nil
	receive(t, r.ready)

	other := s.beginTurn(t, "b", "s2")
	err = rejectionError(t, r.execute(t.Context(), t, other))
	require.Equal(t, failure.AgentState, failure.ModeOf(err))
	require.ErrorContains(t, err, `this worker hosts "a", not "b"`)
	req.Epoch = 0
	err = rejectionError(t, r.execute(t.Context(), t, req))
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.ErrorContains(t, err, "epoch")
	req.Epoch = 1

	_, err = r.Pause(t.Context(), &troupev1.PauseRequest{})
	require.NoError(t, err)
	require.Equal(t, failure.InstancePaused, failure.ModeOf(rejectionError(t, r.execute(t.Context(), t, req))))
	metrics, err := r.GetMetrics(t.Context(), &troupev1.GetMetricsRequest{})
	require.NoError(t, err)
	require.Zero(t, metrics.GetTotalRequests())
	_, messages := s.storedSession(t, "s1")
	require.Len(t, messages, 1)
}

// Req: LC-29a
func TestExecuteStep_AdmitsAtMostCapacity(t *testing.T) {
	s := newWorkerEnv(t)
	const callers, capacity = 12, 3
	wait := make(chan struct{})
	var script []scripted.Reply
	for range capacity {
		script = append(script, scripted.Reply{Deltas: []string{"done"}, Wait: wait})
	}
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(script...), Capacity: capacity})
	errs := make([]error, callers)
	var rejected, all sync.WaitGroup
	rejected.Add(callers - capacity)
	for i := range callers {
		req := s.beginTurn(t, "a", "s"+string(rune('a'+i)))
		all.Go(func() {
			stream, err := r.steps.ExecuteStep(t.Context(), req)
			for err == nil {
				_, err = stream.Recv()
			}
			if errs[i] = grpcfailure.FromStatus("test", err); !errors.Is(err, io.EOF) {
				rejected.Done()
			}
		})
	}
	rejected.Wait()
	close(wait)
	all.Wait()
	in := 0
	for _, err := range errs {
		if errors.Is(err, io.EOF) {
			in++
			continue
		}
		require.Equal(t, failure.InstanceFull, failure.ModeOf(err), "%v", err)
		require.ErrorContains(t, err, "runs 3 steps, which is its capacity")
	}
	require.Equal(t, capacity, in)
}

// panickingModel is a model that panics when it is called.
type panickingModel struct{}

func (panickingModel) Name() string { return "broken/model" }

func (panickingModel) Generate(context.Context, llm.Request) iter.Seq2[llm.Delta, error] {
	return func(func(llm.Delta, error) bool) { _ = []int{}[len("out of range")] }
}

// Req: LC-29
func TestExecuteStep_PanicFailsOnlyTheStep(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: panickingModel{}})
	for _, id := range []string{"s1", "s2"} {
		_, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", id)))
		require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC, result.GetFailure().GetMode())
		require.NotContains(t, result.GetFailure().GetMessage(), "range", "the cause is only logged")
		_, messages := s.storedSession(t, id)
		require.Len(t, messages, 1, "nothing is committed")
	}
	require.Contains(t, r.logs.FilterMessage("step failed").All()[0].ContextMap()["error"], "index out of range")
	awaitCondition(t, "the instance is ready again", func() bool { return r.status(t).GetState() == stateReady })
	metrics, err := r.GetMetrics(t.Context(), &troupev1.GetMetricsRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 2, metrics.GetFailedRequests())
	require.EqualValues(t, 2, metrics.GetTotalRequests())
}

func TestExecuteStep_CancelledCallCommitsNothing(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Reply{Deltas: []string{"too late"}, Wait: make(chan struct{})})})
	ctx, cancel := context.WithCancel(t.Context())
	stream := r.execute(ctx, t, s.beginTurn(t, "a", "s1"))
	awaitHeaders(t, stream)
	cancel()
	_, err := stream.Recv()
	require.Equal(t, failure.UserCancelled, failure.ModeOf(grpcfailure.FromStatus("test", err)))
	awaitCondition(t, "the step has ended", func() bool { return r.status(t).GetInFlight() == 0 })
	stored, messages := s.storedSession(t, "s1")
	require.Len(t, messages, 1)
	require.Equal(t, "t1", stored.OpenTurn, "the orchestrator decides what happens to the turn")
}

// A worker whose turn was taken over cannot write to the turn.
func TestExecuteStep_AFencedCommitIsAFailedStep(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Say("stale"))})
	req := s.beginTurn(t, "a", "s1")
	req.Epoch += 7
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_FENCED, result.GetFailure().GetMode())
	_, messages := s.storedSession(t, "s1")
	require.Len(t, messages, 1)
}

// On SIGTERM a worker first removes its registration, and then lets its running steps end.
// Req: LC-23
func TestWorker_DeregistersBeforeItDrains(t *testing.T) {
	s := newWorkerEnv(t)
	wait := make(chan struct{})
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Reply{Deltas: []string{"in time"}, Wait: wait})})
	require.Equal(t, lifecycle.Ready, s.registeredState(r))
	stream := r.execute(t.Context(), t, s.beginTurn(t, "a", "s1"))
	awaitHeaders(t, stream)

	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	s.Until(func() bool { return len(s.Known) == 0 })
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_SHUTTING_DOWN, r.status(t).GetState())
	require.EqualValues(t, 1, r.status(t).GetInFlight(), "the step still runs")
	require.Equal(t, failure.InstanceDraining, failure.ModeOf(rejectionError(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s2")))))

	close(wait)
	_, result := readStep(t, stream)
	require.Equal(t, "in time", result.GetText())
	require.NoError(t, receive(t, stopped))
	_, messages := s.storedSession(t, "s1")
	require.Equal(t, "in time", messages[1].Text)
}

// A step that does not end within the drain time is cancelled, and its caller gets the reason.
func TestWorker_CancelsStepsThatOutliveTheDrain(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Reply{Wait: make(chan struct{})})})
	stream := r.execute(t.Context(), t, s.beginTurn(t, "a", "s1"))
	awaitHeaders(t, stream)
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	s.Until(func() bool { return s.Known[r.registryKey()].State == "" })
	resp, err := r.Shutdown(t.Context(), &troupev1.ShutdownRequest{Drain: zeroDrainTime})
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_TERMINATED, resp.GetStatus().GetState())
	require.Contains(t, resp.GetErrors(), "1 steps were cancelled at the deadline") // on a busy machine the deregistration may have timed out, too
	_, result := readStep(t, stream)
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_INSTANCE_DRAINING, result.GetFailure().GetMode())
	require.NoError(t, receive(t, stopped))
}
