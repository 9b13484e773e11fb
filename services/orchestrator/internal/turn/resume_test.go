package turn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// threeStepFlow is a workflow with three steps in sequence.
const threeStepFlow = `
    a: {agent: coordinator, next: b}
    b: {agent: research, next: c}
    c: {agent: synthesis, end: true}
`

// newThreeStepRig returns a rig that runs threeStepFlow.
func newThreeStepRig(t *testing.T) *rig {
	t.Helper()
	rig := newRig(t)
	rig.declareSteps(t, threeStepFlow)
	rig.setScript("coordinator", nil)
	return rig
}

// resumeRequest returns a request that resumes the turn of a trace in session s1.
func resumeRequest(events []*troupev1.Event, requestID string) request.Request {
	return request.Request{Ref: session.Ref{Session: "s1"}, RequestID: requestID, Source: request.Source{Trace: events[0].GetTraceId()}}
}

// The third of three steps fails because an API is unavailable, after the first two were published. The resumed
// turn runs only the third step, under the same number and with its journal.
// Req: OC-26, OC-27
func TestTurn_ResumesAFailedTurn(t *testing.T) {
	rig := newThreeStepRig(t)
	runner := rig.newRunner(t, "one")
	rig.setScript("synthesis", failingStep(failure.ResourceAPI))
	broken := runToEnd(t, runner, textRequest("s1", "r1"))
	p := turnResult(broken).GetPartial()
	require.Equal(t, []int32{1, 2}, p.GetCompletedSteps())
	require.Equal(t, []int32{3}, p.GetFailedSteps())
	require.Equal(t, []string{"I am coordinator.", "I am research."}, p.GetPartialData())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_RESOURCE_API, p.GetFailureMode())
	require.Equal(t, troupev1.RecoveryStrategy_RECOVERY_STRATEGY_RETRY_FROM_CHECKPOINT, p.GetRecoveryStrategy())
	require.EqualValues(t, 3, p.GetTotalSteps())
	require.EqualValues(t, 3, p.GetFailurePoint())
	require.EqualValues(t, 1, p.GetRemainingSteps())
	require.InDelta(t, 2.0/3, p.GetCompletionRatio(), 1e-9)
	require.Equal(t, broken[0].GetTraceId(), p.GetTraceId())
	require.True(t, p.GetRecoverable())
	require.Len(t, p.GetStepResults(), 3)
	require.Equal(t, "synthesis", p.GetStepResults()[2].GetAgent())
	require.NotNil(t, p.GetStepResults()[2].GetFailure())
	require.Len(t, p.GetStepTimestamps(), 3)

	rig.setScript("synthesis", nil)
	req := resumeRequest(broken, "r2")
	on := runToEnd(t, runner, req)
	require.Equal(t, []string{
		"initialize turn_started", "plan plan",
		"route routing_decision synthesis", "execute step_started synthesis", "execute step_finished synthesis",
		"aggregate aggregate", "complete turn_result",
	}, eventSummary(durableEvents(on)))
	require.Empty(t, cmp.Diff(&troupev1.From{TraceId: broken[0].GetTraceId()}, on[0].GetTurnStarted().GetFrom(), protocmp.Transform()))
	require.Equal(t, "What may an agent write?", on[0].GetTurnStarted().GetText())
	require.Nil(t, turnResult(on).GetPartial())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, on[len(on)-2].GetAggregate().GetAgents())
	require.EqualValues(t, 1, turnResult(on).GetUsage().GetModelCalls(), "the others were used before")
	record, err := runner.cfg.Traces.Store().Get(t.Context(), trace.Ref{Trace: on[0].GetTraceId()})
	require.NoError(t, err)
	require.Equal(t, broken[0].GetTraceId(), record.GetForkedFrom().GetTraceId())

	require.Equal(t, []string{"coordinator", "research", "synthesis", "synthesis"}, rig.askedAgents())
	first, again := rig.receivedSteps()[2], rig.receivedSteps()[3]
	require.EqualValues(t, 3, again.GetStep())
	require.EqualValues(t, 2, again.GetAttempt(), "it has a journal")
	require.Equal(t, first.GetTurnId(), again.GetOriginTurnId(), "tools know their calls")
	require.Empty(t, first.GetOriginTurnId())
	require.Empty(t, cmp.Diff(historyTexts(first), historyTexts(again)), "the same history")
	require.Equal(t, priorTexts(first), priorTexts(again))

	require.Empty(t, cmp.Diff(durableEvents(on), durableEvents(runToEnd(t, runner, req)), protocmp.Transform()), "the same request is the same turn")
	req.Source.Trace = on[0].GetTraceId()
	require.Equal(t, failure.KeyReused, failure.ModeOf(rejectionError(t, runner, req)))
	require.Len(t, rig.askedAgents(), 4)
}

// One of two branches fails with a mode that another step handled earlier. The resumed turn runs only this branch
// again.
// Req: OC-23, OC-27, C-22
func TestTurn_ResumesTheFailedBranch(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, `
    a: {agent: coordinator, next: f, onError: {continue: true}}
    f: {parallel: [b, c], join: d}
    b: {agent: clarification, next: d}
    c: {agent: research, next: d}
    d: {agent: synthesis, end: true}
`)
	runner := rig.newRunner(t, "one")
	done := make(chan struct{})
	rig.setScript("coordinator", failingStep(failure.AgentLogic))
	rig.setScript("research", func(s *scriptedStep) error { <-done; return failingStep(failure.ResourceAPI)(s) })
	req := textRequest("s1", "r1")
	broken := runToEnd(t, runner, req, func() {
		awaitFinishedSteps(t, runner, req, 2)
		close(done)
	})
	p := turnResult(broken).GetPartial()
	require.Equal(t, []int32{2}, p.GetCompletedSteps(), "%v", turnResult(broken))
	require.Equal(t, []int32{1, 3}, p.GetFailedSteps())
	require.EqualValues(t, 3, p.GetFailurePoint(), "the turn survived the first")
	why := turnResult(broken).GetFailure()
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_PARTIAL_STEP_FAILURES, why.GetMode())
	require.Equal(t, "resource_api", why.GetFacts()["failure_mode"])
	require.Contains(t, why.GetMessage(), "1 of the 2 steps that ran in parallel failed: ")
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_PARTIAL_STEP_FAILURES, p.GetFailureMode())

	rig.setScript("clarification", nil)
	rig.setScript("research", failingStep(failure.ResourceAPI))
	again := runToEnd(t, runner, resumeRequest(broken, "r2"))
	require.Equal(t, []int32{2}, turnResult(again).GetPartial().GetCompletedSteps())
	require.Equal(t, []int32{1, 3}, turnResult(again).GetPartial().GetFailedSteps())
	require.EqualValues(t, 3, turnResult(again).GetPartial().GetFailurePoint())
	gone := rejectionError(t, runner, resumeRequest(broken, "r9"))
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(gone))
	require.Equal(t, "trace "+broken[0].GetTraceId()+" cannot be continued: its session has gone on since, or was cleared or compacted; "+
		"fork it (troupe ask --from "+broken[0].GetTraceId()+" --step N), or resume its latest trace", failure.PlainMessage(gone))

	rig.setScript("research", nil)
	on := runToEnd(t, runner, resumeRequest(again, "r3"))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.ElementsMatch(t, []string{"coordinator", "clarification", "research", "research", "research", "synthesis"}, rig.askedAgents())
	last := rig.receivedSteps()[5]
	require.EqualValues(t, 4, last.GetStep())
	require.ElementsMatch(t, []string{"I am clarification.", "I am research."}, priorTexts(last))
	require.Equal(t, rig.receivedSteps()[0].GetTurnId(), last.GetOriginTurnId())
}

// The orchestrator dies while the step runs again. The replica that takes over knows the prior results.
func TestTurn_ResumedTurnSurvivesTakeover(t *testing.T) {
	rig := newThreeStepRig(t)
	runner := rig.newRunner(t, "zero")
	rig.setScript("research", failingStep(failure.ResourceAPI))
	broken := runToEnd(t, runner, textRequest("s1", "r1"))
	_, ref, _ := rig.loseOwnerDuringResearch(t, resumeRequest(broken, "r2"))
	second := rig.newRunner(t, "two")
	runMaintenance(t, second)
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "research", "research", "synthesis"}, rig.askedAgents())
	last := rig.receivedSteps()[3]
	require.EqualValues(t, 2, last.GetStep())
	require.EqualValues(t, 3, last.GetAttempt())
	require.Equal(t, rig.receivedSteps()[0].GetTurnId(), last.GetOriginTurnId())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, collectPayloads(events, (*troupev1.Event).GetAggregate)[0].GetAgents())
	require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(runToEnd(t, second, resumeRequest(broken, "r2"))), protocmp.Transform()))
}

func TestRunner_RejectsAnInvalidResume(t *testing.T) {
	rig := newThreeStepRig(t)
	runner := rig.newRunner(t, "one")
	done := runToEnd(t, runner, textRequest("s1", "r1"))
	rig.setScript("coordinator", failingStep(failure.ResourceAPI))
	nothing := runToEnd(t, runner, textRequest("s1", "r2"))
	require.Nil(t, turnResult(nothing).GetPartial())
	rig.setScript("coordinator", nil)
	rig.setScript("research", failingStep(failure.AgentLogic))
	hopeless := runToEnd(t, runner, textRequest("s1", "r3"))
	require.False(t, turnResult(hopeless).GetPartial().GetRecoverable())
	rig.setScript("research", failingStep(failure.ResourceAPI))
	mine := textRequest("s2", "r4")
	mine.User = "ann"
	broken := runToEnd(t, runner, mine)
	for name, c := range map[string]struct {
		from   []*troupev1.Event
		change func(*request.Request)
		mode   failure.Mode
		says   string
	}{
		"an answer":       {done, nil, failure.TurnNotOpen, "did not fail"},
		"nothing done":    {nothing, nil, failure.TurnNotOpen, "no step of it was completed"},
		"no way":          {hopeless, nil, failure.TurnNotOpen, "agent_logic, is none that passes"},
		"a target":        {hopeless, func(r *request.Request) { r.Target = "w" }, failure.UserInvalidInput, "target: "},
		"another session": {hopeless, func(r *request.Request) { r.Session = "s2" }, failure.UserInvalidInput, "session_id: the trace is of session s1"},
		"another user's":  {broken, func(r *request.Request) { r.User = "bob" }, failure.NotFound, "trace_id: no trace " + broken[0].GetTraceId()},
		"without a user":  {broken, nil, failure.NotFound, "trace_id: no trace " + broken[0].GetTraceId()},
		"not known":       {done, func(r *request.Request) { r.Source.Trace = "00000000000000000000000000000001" }, failure.NotFound, "no trace 0000"},
	} {
		t.Run(name, func(t *testing.T) {
			req := resumeRequest(c.from, "r9")
			req.Session = ""
			if c.change != nil {
				c.change(&req)
			}
			err := rejectionError(t, runner, req)
			require.Equal(t, c.mode, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
		})
	}
	require.Equal(t, session.Failed, rig.state(t, "s2"))
	ran := len(rig.askedAgents())

	// A resume is rejected when the changed workflow leads to other steps.
	rig.declareSteps(t, `
    a: {agent: coordinator, next: b}
    b: {agent: clarification, next: c}
    c: {agent: synthesis, end: true}
`)
	other := rig.newRunner(t, "two")
	req := resumeRequest(broken, "r5")
	req.User, req.Session = "ann", "s2"
	strayed := turnResult(runToEnd(t, other, req))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_NONDETERMINISM, strayed.GetFailure().GetMode(), "%v", strayed)
	require.Contains(t, strayed.GetFailure().GetMessage(), "step 2 was done by agent research")
	require.Len(t, rig.askedAgents(), ran)
}

// A resumed turn stays in the run, keeps the choices, and has the rest of the earlier turn's budget. A fork begins
// a new run with its own budget.
// Req: OC-27
func TestTurn_ResumesInTheSameRun(t *testing.T) {
	rig := newChoiceRig(t)
	runner := rig.newRunner(t, "one")
	rig.setScript("synthesis", failingStep(failure.ResourceAPI))
	broken := runToEnd(t, runner, labelledRequest(textRequest("s1", "r1"), request.Labels{Needs: []string{"maps"}}))
	used := turnResult(broken).GetUsed().GetModelCalls()
	require.Positive(t, used)
	require.Equal(t, "research", strategyDecisions(broken)[0].GetTarget())
	require.EqualValues(t, 3, turnResult(broken).GetPartial().GetTotalSteps(), "what chooses is none, and not what comes of it")
	rig.setScript("synthesis", nil)
	rig.addInstanceWith("research", lifecycle.Paused, nil) // a new choice would not select a paused instance

	on := runToEnd(t, runner, resumeRequest(broken, "r2"))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"research", "synthesis", "synthesis"}, rig.askedAgents())
	require.Equal(t, broken[0].GetTraceId(), on[0].GetRootTraceId())
	require.NotEqual(t, broken[0].GetTraceId(), on[0].GetTraceId())
	require.Equal(t, used, publishedPlan(on).GetBudget().GetCarried().GetModelCalls())
	require.Greater(t, turnResult(on).GetUsed().GetModelCalls(), used)

	forked := runToEnd(t, runner, forkRequest(broken, "s2", 2))
	require.Equal(t, outcomeCompleted, turnResult(forked).GetOutcome(), "%v", turnResult(forked))
	require.Equal(t, "synthesis", rig.askedAgents()[3], "and no other than was chosen came before it")
	require.Equal(t, forked[0].GetTraceId(), forked[0].GetRootTraceId())
	require.Nil(t, publishedPlan(forked).GetBudget().GetCarried())
}

func publishedPlan(events []*troupev1.Event) *troupev1.Plan {
	return collectPayloads(events, (*troupev1.Event).GetPlan)[0]
}
