package worker_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/response"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// newFuncAgent returns the configuration of an agent whose Run is the given function.
func newFuncAgent(run func(inv agent.Invocation, yield func(event.Event, error) bool)) agent.Config {
	return agent.Config{Name: "a", Run: func(_ context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) { run(inv, yield) }
	}}
}

// The agent gets the whole request: goal, task, trace, profile, priority, timeout, parent context, tags, context,
// constraints and expected output. Its inputs are the conversation and the results of earlier steps.
// Req: OC-28
func TestExecuteStep_PassesAllRequestFieldsToTheAgent(t *testing.T) {
	s := newWorkerEnv(t)
	var got execution.Step
	r := s.start(t, newFuncAgent(func(inv agent.Invocation, yield func(event.Event, error) bool) {
		got = inv.Step
		yield(event.Event{Payload: event.Message{Text: "Done."}}, nil)
	}))
	req := s.beginTurn(t, "a", "s1")
	req.Goal, req.Task, req.ExpectedOutput, req.Constraints = "Know it all.", "Find it.", "One line.", []string{"short", "no jargon"}
	req.Priority, req.Tags, req.Timeout, req.Profile = proto.Int32(0), []string{"demo"}, durationpb.New(time.Minute), "fast"
	req.Plan = &troupev1.PlanRequest{Agents: []*troupev1.PlanAgent{{Name: "b", Description: "Bees."}, {Name: "c"}}, Max: 3, Parallel: true}
	req.Prior = []*troupev1.StepResult{{Step: 1, Agent: "before", Text: "What I found.", Observations: []string{"x"}}}
	req.Step = 2
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure(), "%v", result)
	require.Equal(t, execution.Assignment{
		Goal: "Know it all.", Task: "Find it.", ExpectedOutput: "One line.", Constraints: []string{"short", "no jargon"},
		Tags: []string{"demo"}, Timeout: time.Minute,
		Plan: &execution.PlanRequest{Agents: []execution.PlanAgent{{Name: "b", Description: "Bees."}, {Name: "c"}}, Max: 3, Parallel: true},
	}, got.Assignment)
	require.Equal(t, req.GetTraceId(), got.TraceID)
	require.Equal(t, "fast", got.Context.Profile())
	require.Equal(t, "hello", got.History[0].Text)
	require.Equal(t, []string{"x"}, got.Observations())

	req = s.beginTurn(t, "a", "s2")
	_, result = readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure(), "%v", result)
	require.Equal(t, execution.DefaultPriority, got.Priority)
	require.Equal(t, 5, got.Priority)
}

// Goal, task and trace_id are required, and a priority is 0 to 10. An invalid request is rejected with the name of
// the field, and the agent does not run.
// Req: OC-28
func TestExecuteStep_RejectsARequestWithoutRequiredFields(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, newFuncAgent(func(agent.Invocation, func(event.Event, error) bool) { t.Error("the agent runs") }))
	whole := s.beginTurn(t, "a", "s1")
	for field, spoil := range map[string]func(*troupev1.ExecuteStepRequest){
		"trace_id":       func(r *troupev1.ExecuteStepRequest) { r.TraceId = "" },
		"goal":           func(r *troupev1.ExecuteStepRequest) { r.Goal = "" },
		"task":           func(r *troupev1.ExecuteStepRequest) { r.Task = "" },
		"priority":       func(r *troupev1.ExecuteStepRequest) { r.Priority = proto.Int32(11) },
		"constraints[0]": func(r *troupev1.ExecuteStepRequest) { r.Constraints = []string{""} },
	} {
		req := proto.CloneOf(whole)
		spoil(req)
		err := rejectionError(t, r.execute(t.Context(), t, req))
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), field)
		require.ErrorContains(t, err, field+": ")
	}
	low := proto.CloneOf(whole)
	low.Priority = proto.Int32(-1)
	require.ErrorContains(t, rejectionError(t, r.execute(t.Context(), t, low)), "priority: ")
}

// A step always ends with a response and no gRPC error, however the agent fails. The response contains the
// failure.
// Req: OC-28
func TestExecuteStep_ReturnsErrorsAsResponses(t *testing.T) {
	for name, c := range map[string]struct {
		run    func(agent.Invocation, func(event.Event, error) bool)
		status response.Status
		kind   response.ErrorType
	}{
		"an answer": {func(_ agent.Invocation, yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.Message{Text: "Yes."}}, nil)
		}, response.Success, ""},
		"a question": {func(_ agent.Invocation, yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.Answer{Text: "Which?", Reason: event.InputRequired}}, nil)
		}, response.Pending, ""},
		"reaching the iteration limit": {func(_ agent.Invocation, yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.Answer{Text: "As far as I came.", Reason: event.MaxIterations}}, nil)
		}, response.Partial, ""},
		"an error": {func(_ agent.Invocation, yield func(event.Event, error) bool) {
			yield(event.Event{}, context.Canceled)
		}, response.Failed, response.ExecutionError},
		"an error with a mode": {func(_ agent.Invocation, yield func(event.Event, error) bool) {
			yield(event.Event{}, failure.New(failure.SystemNetwork, "test", "no way there").WithRetryAfter(time.Second))
		}, response.Failed, response.NetworkError},
		"a panic": {func(agent.Invocation, func(event.Event, error) bool) { panic("oh no") }, response.Failed, response.ExecutionError},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			r := s.start(t, newFuncAgent(c.run))
			_, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
			resp := response.FromResult(wire.ResultFromProto(result))
			require.Equal(t, c.status, resp.Status, "%v", result)
			require.Equal(t, c.status == response.Failed, resp.Error != nil)
			if resp.Error == nil {
				require.NotEmpty(t, resp.Result.Text)
				return
			}
			require.Equal(t, c.kind, resp.Error.Type)
			require.NotEmpty(t, resp.Error.Message)
			require.NotContains(t, resp.Error.Message, "oh no", "the cause is only logged")
		})
	}
}
