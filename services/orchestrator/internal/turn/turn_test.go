package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

const (
	outcomeCompleted = troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED
	outcomeFailed    = troupev1.TurnOutcome_TURN_OUTCOME_FAILED
)

// Req: OC-1, OC-2, OC-4, RA-5
func TestTurn_RunsAllStages(t *testing.T) {
	rig := newRig(t)
	watched := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error { <-watched; return s.commitAnswer("I am research.") })
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"), func() { close(watched) })
	require.Equal(t, []string{
		"initialize turn_started", "plan plan",
		"route routing_decision coordinator", "execute step_started coordinator", "execute step_finished coordinator",
		"route routing_decision research", "execute step_started research", "execute text_delta research", "execute step_finished research",
		"route routing_decision synthesis", "execute step_started synthesis", "execute text_delta synthesis", "execute step_finished synthesis",
		"aggregate aggregate", "complete turn_result",
	}, eventSummary(events))
	begin := events[0].GetTurnStarted()
	require.Equal(t, "r1", begin.GetRequestId())
	require.Equal(t, "research-assistant", begin.GetTarget())
	require.EqualValues(t, 4, begin.GetInstancesReady())
	result := turnResult(events)
	require.Equal(t, outcomeCompleted, result.GetOutcome())
	require.Equal(t, "I am synthesis.", result.GetText())
	require.Equal(t, "synthesis", result.GetAgent())
	require.EqualValues(t, 3, result.GetUsage().GetModelCalls())
	require.Positive(t, result.GetDuration().AsDuration())

	steps := rig.receivedSteps()
	require.Len(t, steps, 3)
	for i, s := range steps {
		require.EqualValues(t, i+1, s.GetStep())
		require.Equal(t, events[0].GetTraceId(), s.GetTraceId())
		require.Equal(t, steps[0].GetEpoch(), s.GetEpoch())
		require.Len(t, s.GetPrior(), i)
		require.Equal(t, i == 2, s.GetLast())
	}
	require.Equal(t, []string{"clarification", "research"}, steps[0].GetRoutes())
	require.Equal(t, []int64{1, 1, 2}, []int64{steps[0].GetBaseSequence(), steps[1].GetBaseSequence(), steps[2].GetBaseSequence()})
	require.Equal(t, "I am research.", steps[2].GetHistory()[1].GetParts()[0].GetText())
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}

// A turn calls Startup of an agent that is not ready. The agent is started once for all turns.
// Req: LC-34
func TestTurn_StartsAnAgentThatIsNotReady(t *testing.T) {
	rig := newRig(t)
	rig.cache.Apply(registry.Update{Put: &registry.Instance{
		ID: "research-1", Agent: "research", Address: rig.address, State: lifecycle.Uninitialized, Capacity: 16,
	}})
	runner := rig.newRunner(t, "one")
	for n := range 2 {
		events := runToEnd(t, runner, textRequest("s1", fmt.Sprint("r", n)))
		require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
		require.Equal(t, troupev1.Stage_STAGE_INITIALIZE, events[0].GetStage())
		require.Equal(t, session.Ready, rig.state(t, "s1"))
	}
	require.EqualValues(t, 1, rig.starts.Load())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, rig.askedAgents()[:3])
}

// When an agent stops the turn, the turn ends, even if the workflow has a next step.
func TestTurn_AgentStopEndsTheTurn(t *testing.T) {
	rig := newRig(t)
	rig.setScript("research", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.Stopped = "The turn was stopped: not this.", true })
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, "The turn was stopped: not this.", turnResult(events).GetText())
	require.Equal(t, []string{"coordinator", "research"}, rig.askedAgents())
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}

// Req: RA-13, RA-14
func TestTurn_QuestionToTheUserEndsTheTurn(t *testing.T) {
	rig := newRig(t)
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.NextAgent = "clarification" })
	})
	rig.setScript("clarification", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.InputRequired = "Which one?", true })
	})
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, troupev1.Stage_STAGE_INPUT_REQUIRED, events[len(events)-1].GetStage())
	require.Equal(t, "Which one?", turnResult(events).GetText())
	require.Equal(t, session.InputRequired, rig.state(t, "s1"))

	events = runToEnd(t, runner, textRequest("s1", "r2"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	require.Equal(t, []string{"coordinator", "clarification", "research", "synthesis"}, rig.askedAgents(), "the reply goes to research at once")
}

// Req: RA-11
func TestTurn_FailedRoutingStepFollowsTheDefault(t *testing.T) {
	rig := newRig(t)
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.ResourceAPI, "test", "the model is away"))})
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, rig.askedAgents())
	var second *troupev1.RoutingDecision
	for _, e := range events {
		if d := e.GetRoutingDecision(); d.GetTarget() == "research" {
			second = d
		}
	}
	require.Equal(t, troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT, second.GetStrategy())
	require.Equal(t, "coordinator failed (resource_api); research is the default", second.GetReason())
	require.Equal(t, []string{"clarification"}, second.GetAlternatives())
}

// Whatever the failure of a step, the turn ends exactly once and the session accepts the next turn.
// Req: LP-17
func TestTurn_FailedStepFailsTheTurnNotTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		research func(*scriptedStep) error
		want     troupev1.FailureMode
		says     string
	}{
		"the only worker breaks off": {
			(*scriptedStep).cutConnections, troupev1.FailureMode_FAILURE_MODE_NO_WORKER,
			"instance research-1 of agent research went away while it worked; then no instance of agent research took the step within 100ms",
		},
		"an error behind the header": {
			func(*scriptedStep) error { return failure.New(failure.ResourceMemory, "test", "too big") }, troupev1.FailureMode_FAILURE_MODE_NO_WORKER,
			"instance research-1 of agent research broke the step off: too big; then no instance",
		},
		"a failed result": {
			func(s *scriptedStep) error {
				return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.ResourceTool, "test", "no search"))})
			}, troupev1.FailureMode_FAILURE_MODE_RESOURCE_TOOL, "no search",
		},
		"a result of nothing": {
			func(s *scriptedStep) error { return s.sendResult(&troupev1.StepResult{Text: "not committed"}) },
			troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, "did not commit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			rig.routeTimeout = 100 * time.Millisecond
			runner := rig.newRunner(t, "one")
			rig.setScript("research", c.research)
			events := runToEnd(t, runner, textRequest("s1", "r1"))
			result := turnResult(events)
			require.Equal(t, outcomeFailed, result.GetOutcome())
			require.Equal(t, troupev1.Stage_STAGE_FAILED, events[len(events)-1].GetStage())
			require.Equal(t, c.want, result.GetFailure().GetMode(), "%v", result)
			require.Contains(t, result.GetFailure().GetMessage(), c.says)
			require.Equal(t, session.Failed, rig.state(t, "s1"))
			kept, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 10)
			require.NoError(t, err)
			require.Len(t, kept, 1, "what the user said, and nothing of the step")

			rig.setScript("research", nil)
			rig.routeTimeout = patience // a busy machine needs longer to connect again
			events = runToEnd(t, rig.newRunner(t, "two"), textRequest("s1", "r2"))
			require.EqualValues(t, 2, events[0].GetTurn())
			require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
		})
	}
}

// Req: RA-7
func TestTurn_RejectsAHandoffOutsideTheWorkflow(t *testing.T) {
	rig := newRig(t)
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.NextAgent = "synthesis" })
	})
	result := turnResult(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1")))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, result.GetFailure().GetMode())
	require.Contains(t, result.GetFailure().GetMessage(), `asks to hand on to "synthesis"; the workflow allows clarification, research`)
	require.Equal(t, []string{"coordinator"}, rig.askedAgents())
}

func TestTurn_IgnoresTurnFieldsSetByAWorker(t *testing.T) {
	rig := newRig(t)
	watched := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		<-watched
		forged := []*troupev1.Event{
			{Payload: &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{Text: "all done"}}},
			{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{Target: "research"}}},
			{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{}}},
			{},
			{
				Sequence: 4000, InstanceId: "another",
				Stage: troupev1.Stage_STAGE_COMPLETE, Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "said"}},
			},
			{Sequence: 1, Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: "HEARD"}}},
			{Sequence: 1, Payload: &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{Tool: "search", Message: "half", Fraction: new(0.5)}}},
			{Payload: &troupev1.Event_SubtaskStarted{SubtaskStarted: &troupev1.SubtaskStarted{Target: "remote"}}},
		}
		for _, e := range forged {
			if err := s.sendEvent(e); err != nil {
				return err
			}
		}
		return s.commitAnswer("I am research.")
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"), func() { close(watched) })
	require.Equal(t, "I am synthesis.", turnResult(events).GetText())
	var heard []string
	for _, e := range events {
		if e.GetAgent() == "research" {
			heard = append(heard, strings.Fields(eventSummary([]*troupev1.Event{e})[0])[1])
			require.EqualValues(t, 2, e.GetStep())
			require.Equal(t, "research-1", e.GetInstanceId())
			require.Equal(t, e.GetTextDelta() != nil || e.GetToolProgress() != nil, e.GetSequence() == 0)
		}
	}
	require.Equal(t, []string{"step_started", "text_delta", "warning", "tool_progress", "subtask_started", "text_delta", "step_finished"}, heard)
}

// The tool call that requested the turn is published and stored. It is not part of the request's fingerprint.
func TestTurn_RecordsItsParentCall(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	req := textRequest("s1", "r1")
	req.Parent = &troupev1.Parent{TraceId: "11111111111111111111111111111111", TurnId: "above", Step: 2, Call: 3}
	events := runToEnd(t, runner, req)
	require.Empty(t, cmp.Diff(req.Parent, events[0].GetTurnStarted().GetParent(), protocmp.Transform()))
	stored, err := runner.cfg.Traces.Store().Get(t.Context(), trace.Ref{Tenant: req.Tenant, Trace: events[0].GetTraceId()})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(req.Parent, stored.GetParent(), protocmp.Transform()))

	req.Parent = nil
	again := runToEnd(t, runner, req)
	require.Equal(t, events[0].GetTraceId(), again[0].GetTraceId())
	require.NotNil(t, again[0].GetTurnStarted().GetParent())
}

// The worker is killed after it committed and before it returned the result. The turn still gets the committed
// answer.
func TestTurn_RecoversACommittedResultThatWasLost(t *testing.T) {
	rig := newRig(t)
	rig.setScript("synthesis", func(s *scriptedStep) error {
		if _, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "It is committed." }); err != nil {
			return err
		}
		return s.cutConnections()
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	result := turnResult(events)
	require.Equal(t, outcomeCompleted, result.GetOutcome())
	require.Equal(t, "It is committed.", result.GetText())
	require.Nil(t, result.GetFailure())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, events[len(events)-2].GetAggregate().GetAgents())
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}

// The session does not contain an answer that was not committed, so the turn drops the answer.
func TestTurn_DropsAResultThatWasNotCommitted(t *testing.T) {
	rig := newRig(t)
	rig.setScript("synthesis", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Text: "believe me", Sequence: s.req.GetBaseSequence()})
	})
	result := turnResult(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1")))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, result.GetFailure().GetMode(), "%v", result)
	require.Contains(t, result.GetFailure().GetMessage(), "did not commit")
	require.Equal(t, session.Failed, rig.state(t, "s1"))
}

func TestTurn_TimeoutFailsTheTurn(t *testing.T) {
	rig := newRig(t)
	cancelled := make(chan error, 1)
	rig.setScript("coordinator", func(s *scriptedStep) error {
		<-s.stream.Context().Done()
		cancelled <- s.stream.Context().Err()
		return s.stream.Context().Err()
	})
	runner := rig.newRunner(t, "one")
	// A busy machine may need longer than a short timeout to dispatch the step. Then the next turn gets twice the time.
	for timeout := 500 * time.Millisecond; len(rig.askedAgents()) == 0; timeout *= 2 {
		req := textRequest(timeout.String(), "r1")
		req.Timeout = timeout
		result := turnResult(runToEnd(t, runner, req))
		require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_TIMEOUT, result.GetFailure().GetMode())
		require.Contains(t, result.GetFailure().GetMessage(), fmt.Sprintf("within its %s", timeout))
		require.Equal(t, session.Failed, rig.state(t, timeout.String()))
	}
	require.Error(t, receive(t, cancelled), "the worker was notified")
}

// A closing runner admits no new turns and waits for running ones until its context ends. It hands over the rest,
// and another runner continues them at once, under the same trace.
func TestRunner_CloseHandsOverTurnsThatDoNotEndInTime(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	working := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	done := startRequest(t, runner, textRequest("s1", "r1"))
	receive(t, working)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	runner.Close(ended)
	for _, err := range runner.Orchestrate(t.Context(), textRequest("s1", "r2")) {
		require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%v", err)
	}

	second := rig.newRunner(t, "two")
	require.Equal(t, failure.SessionBusy, failure.ModeOf(rejectionError(t, second, textRequest("s1", "r2"))), "the replica that takes over continues it")
	events := runToEnd(t, second, textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "no lease had to run out: %v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
	require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(receive(t, done)), protocmp.Transform()), "who watches it here sees the same")
}

func TestRunner_CloseWaitsForTurns(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	working, release := make(chan struct{}), make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		close(working)
		<-release
		return s.commitAnswer("in time")
	})
	done, closed := make(chan []*troupev1.Event, 1), make(chan struct{})
	go func() { done <- runToEnd(t, runner, textRequest("s1", "r1")) }()
	receive(t, working)
	go func() { defer close(closed); runner.Close(t.Context()) }()
	close(release)
	require.Equal(t, outcomeCompleted, turnResult(receive(t, done)).GetOutcome())
	receive(t, closed)
}

// A request with an unknown target is rejected and stores nothing.
func TestRunner_RejectsUnknownTargets(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	req := textRequest("s1", "r1")
	req.Target = "nowhere"
	for e, err := range runner.Orchestrate(t.Context(), req) {
		require.Nil(t, e)
		require.Equal(t, failure.NotFound, failure.ModeOf(err), "%v", err)
	}
	_, err := rig.memory.GetSession(t.Context(), session.Ref{Session: "s1"})
	require.Equal(t, failure.NotFound, failure.ModeOf(err))
	require.Empty(t, rig.redis.Keys())
}

// A caller that disconnects does not end its turn.
func TestRunner_TurnOutlivesItsCaller(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	release := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error { <-release; return s.commitAnswer("found") })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var last error
	for e, err := range runner.Orchestrate(ctx, textRequest("s1", "r1")) {
		if last = err; e.GetStepStarted() != nil && e.GetAgent() == "research" {
			leave()
		}
	}
	require.True(t, errors.Is(last, context.Canceled), "%v", last)
	close(release)
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, textRequest("s1", "r1"))).GetOutcome())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, rig.askedAgents())
}
