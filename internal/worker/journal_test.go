package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// recordingTool builds a tool that records the idempotency keys of its calls.
type recordingTool struct {
	mu   sync.Mutex
	keys []string
}

type noArguments struct{}

func (r *recordingTool) tool(t *testing.T, effect execution.Effect) tool.Tool {
	t.Helper()
	made, err := tool.Func("act", "Acts.", func(ctx context.Context, _ noArguments) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keys = append(r.keys, tool.IdempotencyKey(ctx))
		return "acted", nil
	})
	require.NoError(t, err)
	return tool.WithEffect(effect, made)
}

func (r *recordingTool) recordedKeys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.keys...)
}

func actCall() scripted.Reply {
	return scripted.Call(conversation.ToolCall{ID: "c1", Name: "act", Arguments: "{}"})
}

// takeOver takes over the turn of req, as the orchestrator does for a lost attempt. It returns the request of the
// next attempt.
func (e *workerEnv) takeOver(t *testing.T, req *troupev1.ExecuteStepRequest) *troupev1.ExecuteStepRequest {
	t.Helper()
	begun, err := e.memory.BeginTurn(t.Context(), memory.Begin{
		Ref: session.Ref{Session: req.GetSessionId()}, TurnID: req.GetTurnId(), TraceID: req.GetTraceId(), Fingerprint: "f",
		Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 10, LostEpoch: req.GetEpoch(),
	})
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, begun.Status)
	require.Greater(t, begun.Turn.Epoch, req.GetEpoch())
	next := e.copyRequest(t, req)
	next.Epoch, next.Attempt = begun.Turn.Epoch, req.GetAttempt()+1
	return next
}

func (e *workerEnv) copyRequest(t *testing.T, req *troupev1.ExecuteStepRequest) *troupev1.ExecuteStepRequest {
	t.Helper()
	return &troupev1.ExecuteStepRequest{
		TraceId: req.GetTraceId(), SessionId: req.GetSessionId(), TurnId: req.GetTurnId(), Turn: 1, Step: 1,
		Agent: req.GetAgent(), History: req.GetHistory(), BaseSequence: req.GetBaseSequence(), Last: true,
		Goal: req.GetGoal(), Task: req.GetTask(),
	}
}

// The first attempt is lost during its second model call. Its successor makes only that call again, and runs no
// tool again.
// Req: LP-31
func TestExecuteStep_ASuccessorContinuesFromTheJournal(t *testing.T) {
	s := newWorkerEnv(t)
	acted := new(recordingTool)
	never := make(chan struct{})
	model := scripted.New(actCall(), scripted.Reply{Deltas: []string{"Lost."}, Wait: never}, scripted.Say("All done."))
	r := s.start(t, agent.Config{Name: "a", Model: model, Tools: []tool.Tool{acted.tool(t, execution.AtMostOnce)}})

	req := s.beginTurn(t, "a", "s1")
	ctx, kill := context.WithCancel(t.Context())
	r.execute(ctx, t, req)
	awaitCondition(t, "the second model call is under way, and the tool's result durable", func() bool {
		entries, err := s.memory.LoadJournal(t.Context(), memory.Lease{Ref: session.Ref{Session: "s1"}, TurnID: "t1", Epoch: req.GetEpoch()}, 1, 0)
		require.NoError(t, err)
		return len(entries) == 3 && len(model.Requests()) == 2
	})
	kill()

	_, result := readStep(t, r.execute(t.Context(), t, s.takeOver(t, req)))
	require.Nil(t, result.GetFailure())
	require.Equal(t, "All done.", result.GetText())
	require.EqualValues(t, 2, result.GetUsage().GetModelCalls(), "the call of the lost attempt counts too")
	require.Equal(t, []string{"act"}, result.GetToolsCalled())
	require.Equal(t, []string{stepjournal.CallKey("t1", 1, 2)}, acted.recordedKeys())
	require.Len(t, model.Requests(), 3)
	_, messages := s.storedSession(t, "s1")
	require.Len(t, messages, 2)
}

// A worker that continues after its turn was taken over does nothing more.
func TestExecuteStep_FencedAttemptDoesNothing(t *testing.T) {
	for _, effect := range []execution.Effect{execution.Idempotent, execution.AtMostOnce} {
		t.Run(string(effect), func(t *testing.T) {
			s := newWorkerEnv(t)
			acted := new(recordingTool)
			wake := make(chan struct{})
			zombie := actCall()
			zombie.Wait = wake
			r := s.start(t, agent.Config{Name: "a", Model: scripted.New(zombie, scripted.Say("Too late.")), Tools: []tool.Tool{acted.tool(t, effect)}})
			req := s.beginTurn(t, "a", "s1")
			stream := r.execute(t.Context(), t, req)
			awaitHeaders(t, stream)
			s.takeOver(t, req)
			close(wake)

			_, result := readStep(t, stream)
			require.Equal(t, failure.Fenced, grpcfailure.FromProto(result.GetFailure()).Mode, "%v", result.GetFailure())
			require.Empty(t, acted.recordedKeys())
			_, messages := s.storedSession(t, "s1")
			require.Len(t, messages, 1)
			require.Len(t, r.logs.FilterMessage("step failed").All(), 1)
		})
	}
}

func TestExecuteStep_SendsHeartbeats(t *testing.T) {
	s := newWorkerEnv(t)
	wait := make(chan struct{})
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Reply{Deltas: []string{"Good day."}, Wait: wait})})
	stream := r.execute(t.Context(), t, s.beginTurn(t, "a", "s1"))
	for range 2 {
		item, err := stream.Recv()
		require.NoError(t, err)
		require.NotNil(t, item.GetHeartbeat(), "%v", item)
	}
	close(wait)
	_, result := readStep(t, stream)
	require.Equal(t, "Good day.", result.GetText())
}

// A worker runs a step only once under one epoch. A request with a higher epoch ends the earlier attempt.
func TestExecuteStep_RunsOncePerEpoch(t *testing.T) {
	s := newWorkerEnv(t)
	acted := new(recordingTool)
	asked, never := make(chan struct{}), make(chan struct{})
	model := scripted.New(scripted.Reply{Deltas: []string{"Lost."}, Asked: asked, Wait: never}, actCall(), scripted.Say("All done."))
	r := s.start(t, agent.Config{Name: "a", Model: model, Tools: []tool.Tool{acted.tool(t, execution.AtMostOnce)}})
	req := s.beginTurn(t, "a", "s1")
	first := r.execute(t.Context(), t, req)
	<-asked // the second request must get the model's second reply

	err := rejectionError(t, r.execute(t.Context(), t, req))
	require.Equal(t, failure.Fenced, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "already runs here")

	_, result := readStep(t, r.execute(t.Context(), t, s.takeOver(t, req)))
	require.Equal(t, "All done.", result.GetText())
	require.Len(t, acted.recordedKeys(), 1)
	_, lost := readStep(t, first)
	require.Equal(t, failure.Fenced, grpcfailure.FromProto(lost.GetFailure()).Mode, "%v", lost.GetFailure())
}
