package turn

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// makeBranchWait makes the steps of an agent end with a pending call, as a worker ends a step in a branch: without a
// commit. The step answers once it gets an answer to the call.
func (r *rig) makeBranchWait(agent string) {
	r.setScript(agent, func(s *scriptedStep) error {
		if len(s.req.GetAnswers()) > 0 {
			return s.commitAnswer("I am " + agent + ", answered.")
		}
		id := fmt.Sprintf("%d-%d-2", s.req.GetTurn(), s.req.GetStep())
		call := &troupev1.PendingCall{
			Id: id, CallId: "call-1", Agent: agent, Tool: "send_" + agent, Arguments: "{}",
			Needs: troupev1.CallNeed_CALL_NEED_APPROVAL, Until: timestamppb.New(timestamppb.Now().AsTime().Add(patience)),
		}
		if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: call}}}); err != nil {
			return err
		}
		return s.sendResult(&troupev1.StepResult{
			Text: call.GetTool() + " waits for an approval.", InputRequired: true, Pending: []*troupev1.PendingCall{call}, Sequence: s.req.GetBaseSequence(),
		})
	})
}

// pendingIDs returns the ids of the calls that wait at the end of a turn.
func pendingIDs(events []*troupev1.Event) (ids []string) {
	for _, p := range turnResult(events).GetPending() {
		ids = append(ids, p.GetId())
	}
	return ids
}

// Calls in branches wait together. The other branch is kept, and answers continue only the waiting branches, to the join.
// Req: AD-32, OC-27, C-22
func TestTurn_BranchesThatWaitContinueWithTheAnswers(t *testing.T) {
	rig := newBranchesRig(t)
	rig.makeBranchWait("coordinator")
	rig.makeBranchWait("research")
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, inputRequired, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"1-1-2", "1-3-2"}, pendingIDs(events))
	require.Equal(t, "send_coordinator and send_research wait for an approval.", turnResult(events).GetText())
	require.Equal(t, session.InputRequired, rig.state(t, "s1"))

	answer := answerRequest("r2", approvalAnswer("1-1-2"), execution.Answer{ID: "1-3-2", Verdict: execution.Deny})
	on := runToEnd(t, runner, answer)
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	steps := rig.receivedSteps()[3:]
	require.Len(t, steps, 3)
	slices.SortFunc(steps, func(a, b *troupev1.ExecuteStepRequest) int { return int(a.GetStep() - b.GetStep()) })
	for i, want := range []struct {
		step    int32
		agent   string
		answers []string
	}{{1, "coordinator", []string{"1-1-2"}}, {3, "research", []string{"1-3-2"}}, {4, "synthesis", nil}} {
		require.Equal(t, want.step, steps[i].GetStep())
		require.Equal(t, want.agent, steps[i].GetAgent())
		var ids []string
		for _, a := range steps[i].GetAnswers() {
			ids = append(ids, a.GetId())
		}
		require.Equal(t, want.answers, ids)
		require.Equal(t, i < 2, steps[i].GetAttempt() == 2, "a step that waited has a journal")
	}
	require.Equal(t, []string{"I am coordinator, answered.", "I am clarification.", "I am research, answered."}, priorTexts(steps[2]))
	for _, e := range on {
		require.NotEqual(t, "clarification", e.GetAgent(), "its step belongs to the first trace: %v", e)
	}
	require.Empty(t, cmp.Diff(durableEvents(on), durableEvents(runToEnd(t, runner, answer)), protocmp.Transform()), "the same request is the same turn")
	require.Len(t, rig.receivedSteps(), 6)
}

// An answer to some of the calls continues their branch. The others wait again, and nothing is lost.
func TestTurn_BranchesWithoutAnAnswerWaitAgain(t *testing.T) {
	rig := newBranchesRig(t)
	rig.makeBranchWait("coordinator")
	rig.makeBranchWait("research")
	runner := rig.newRunner(t, "one")
	runToEnd(t, runner, textRequest("s1", "r1"))
	second := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-3-2")))
	require.Equal(t, inputRequired, turnResult(second).GetOutcome(), "%v", turnResult(second))
	require.Equal(t, []string{"2-1-2"}, pendingIDs(second))
	third := runToEnd(t, runner, answerRequest("r3", approvalAnswer("2-1-2")))
	require.Equal(t, outcomeCompleted, turnResult(third).GetOutcome(), "%v", turnResult(third))
	asked := rig.askedAgents()
	slices.Sort(asked[:3])
	slices.Sort(asked[3:5])
	require.Equal(t, []string{"clarification", "coordinator", "research", "coordinator", "research", "coordinator", "synthesis"}, asked)
	require.Equal(t, []string{"I am coordinator, answered.", "I am clarification.", "I am research, answered."}, priorTexts(rig.receivedSteps()[6]))
}

// A tolerated failure of a sibling is kept: its step is not run again by the answers.
func TestTurn_AFailedBranchIsKeptWhileAnotherWaits(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, `
    a: {parallel: [b, c, d], join: e}
    b: {agent: coordinator, next: e, onError: {continue: true}}
    c: {agent: clarification, next: e, onError: {fallback: f}}
    d: {agent: research, next: e}
    f: {agent: reserve, next: e}
    e: {agent: synthesis, end: true}
`)
	rig.addInstances("reserve", 1)
	broken := func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.AgentLogic, "test", "broken"))})
	}
	rig.setScript("coordinator", broken)
	rig.setScript("clarification", broken)
	rig.makeBranchWait("research")
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, inputRequired, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, "send_research waits for an approval.", turnResult(events).GetText())
	require.Equal(t, "research", turnResult(events).GetAgent())
	on := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-3-2")))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"research", "reserve", "synthesis"}, rig.askedAgents()[3:])
	require.Equal(t, []string{"I am research, answered.", "I am reserve."}, priorTexts(rig.receivedSteps()[5]))
}

// A branch that fails the turn ends it as failed. A turn that resumes it asks again for the calls that waited.
// Req: OC-27
func TestTurn_ResumeAsksAgainForCallsOfBranches(t *testing.T) {
	rig := newBranchesRig(t)
	waits := make(chan struct{})
	rig.makeBranchWait("coordinator")
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		<-waits
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.ResourceAPI, "test", "down"))})
	})
	runner := rig.newRunner(t, "one")
	req := textRequest("s1", "r1")
	events := runToEnd(t, runner, req, func() {
		awaitFinishedSteps(t, runner, req, 2)
		close(waits)
	})
	require.Equal(t, "down", turnResult(events).GetFailure().GetMessage())
	require.True(t, turnResult(events).GetPartial().GetRecoverable())
	resumed := runToEnd(t, runner, resumeRequest(events, "r2"))
	require.Equal(t, []string{"2-1-2"}, pendingIDs(resumed), "%v", turnResult(resumed))
	on := runToEnd(t, runner, answerRequest("r3", approvalAnswer("2-1-2")))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, 1, countOf(rig.askedAgents(), "clarification"))
	require.Equal(t, 2, countOf(rig.askedAgents(), "research"))
}

func countOf(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// The orchestrator is lost while one branch waits and another still runs. Its successor knows from the trace that the
// first one waits, and runs only the other.
func TestTurn_TakeoverKeepsABranchThatWaits(t *testing.T) {
	rig := newBranchesRig(t)
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	rig.makeBranchWait("research")
	working := make(chan struct{})
	rig.setScript("clarification", func(s *scriptedStep) error {
		rig.setScript("clarification", nil)
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	req := textRequest("s1", "r1")
	runUntilStepStarts(t, first, req, "clarification")
	receive(t, working)
	awaitFinishedSteps(t, first, req, 2)
	rig.expireLeases()
	events := runToEnd(t, second, req)
	require.Equal(t, inputRequired, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"1-3-2"}, pendingIDs(events))
	require.Equal(t, "clarification", rig.askedAgents()[3])
	require.Len(t, rig.askedAgents(), 4)
	on := runToEnd(t, second, answerRequest("r2", approvalAnswer("1-3-2")))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"research", "synthesis"}, rig.askedAgents()[4:])
}

// The orchestrator is lost while it continues with the answers. The branch that was finished with them is not run again.
func TestTurn_TakeoverOfAContinuationRunsOnlyOpenBranches(t *testing.T) {
	rig := newBranchesRig(t)
	first := rig.newRunner(t, "one")
	rig.makeBranchWait("coordinator")
	rig.makeBranchWait("research")
	runToEnd(t, first, textRequest("s1", "r1"))
	working := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		rig.makeBranchWait("research")
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	answer := answerRequest("r2", approvalAnswer("1-1-2"), approvalAnswer("1-3-2"))
	runUntilStepStarts(t, first, answer, "research")
	receive(t, working)
	awaitFinishedSteps(t, first, answer, 1)
	rig.expireLeases()
	events := runToEnd(t, rig.newRunner(t, "two"), answer)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	asked := rig.askedAgents()[3:]
	slices.Sort(asked[:2])
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, asked)
	for _, e := range events {
		require.NotEqual(t, "clarification", e.GetAgent(), "its step belongs to the first trace: %v", e)
	}
}

// The tasks of a planner wait like branches, whether they run at once or in sequence.
func TestTurn_TasksOfAPlannerWait(t *testing.T) {
	for _, parallel := range []string{"false", "true"} {
		t.Run(parallel, func(t *testing.T) {
			rig := newPlanRig(t, parallel, twoTasks...)
			rig.makeBranchWait("research")
			runner := rig.newRunner(t, "one")
			events := runToEnd(t, runner, textRequest("s1", "r1"))
			require.Equal(t, inputRequired, turnResult(events).GetOutcome(), "%v", turnResult(events))
			require.Equal(t, []string{"1-2-2"}, pendingIDs(events))
			on := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
			require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
			require.Equal(t, 1, countOf(rig.askedAgents(), "clarification"))
			require.Equal(t, 1, countOf(rig.askedAgents(), "coordinator"))
			steps := rig.receivedSteps()
			require.Equal(t, []string{"Let us look.", "I am research, answered.", "clarification did: doubt it"}, priorTexts(steps[len(steps)-1]))
		})
	}
}

// A worker that reports a user's STOP in a branch cancels the turn. A question in a branch is still rejected.
func TestTurn_StopInABranchCancelsTheTurn(t *testing.T) {
	rig := newBranchesRig(t)
	rig.setScript("research", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.UserCancelled, "test", "stopped"))})
	})
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, turnResult(events).GetOutcome())
	require.Equal(t, "stopped", turnResult(events).GetFailure().GetMessage())
	rig.setScript("research", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Text: "Which one?", InputRequired: true, Sequence: s.req.GetBaseSequence()})
	})
	events = runToEnd(t, runner, textRequest("s2", "r1"))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, turnResult(events).GetFailure().GetMode())
}

// A turn whose branches wait can be forked from the first step that did not end.
func TestTurn_ForkOfATurnWhoseBranchesWait(t *testing.T) {
	rig := newBranchesRig(t)
	rig.makeBranchWait("clarification")
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, []string{"1-2-2"}, pendingIDs(events))
	rig.setScript("clarification", nil)
	forked := runToEnd(t, runner, forkRequest(events, "s2", 2))
	require.Equal(t, outcomeCompleted, turnResult(forked).GetOutcome(), "%v", turnResult(forked))
	require.Equal(t, 1, countOf(rig.askedAgents(), "coordinator"))
	require.Equal(t, session.InputRequired, rig.state(t, "s1"), "the calls of the first session still wait")
}

// awaitFinishedSteps waits until the trace of a running request has stored the ends of so many steps.
func awaitFinishedSteps(t *testing.T, r *Runner, req request.Request, steps int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s, err := r.cfg.Memory.GetSession(t.Context(), req.Ref)
		if err != nil {
			return false
		}
		events, err := r.cfg.Traces.Store().Events(t.Context(), trace.Ref{Trace: s.LastTrace}, 0, 100)
		finished := 0
		for _, e := range events {
			if e.GetStepFinished() != nil {
				finished++
			}
		}
		return err == nil && finished == steps
	}, patience, 10*time.Millisecond)
}
