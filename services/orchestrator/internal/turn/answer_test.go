package turn

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

const inputRequired = troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED

// approvalCall is a pending call of research, the second step, that needs an approval.
func approvalCall() *troupev1.PendingCall {
	return &troupev1.PendingCall{
		Id: "1-2-2", CallId: "call-1", Tool: "send_mail", Arguments: `{"to":"bob@example.com"}`, Needs: troupev1.CallNeed_CALL_NEED_APPROVAL,
		Risk: "at_most_once", Reason: "research wants to send a mail.", Until: timestamppb.New(time.Now().Add(time.Minute)),
	}
}

// makeResearchWait makes the next step of research end with pending calls.
func (r *rig) makeResearchWait(calls ...*troupev1.PendingCall) {
	r.setScript("research", func(s *scriptedStep) error {
		r.setScript("research", nil)
		for _, c := range calls {
			if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: c}}}); err != nil {
				return err
			}
		}
		return s.commit(func(r *troupev1.StepResult) {
			r.Text, r.InputRequired, r.Pending = "send_mail waits for an approval.", true, calls
		})
	})
}

// answerRequest returns a request in session s1 with answers.
func answerRequest(requestID string, answers ...execution.Answer) request.Request {
	return request.Request{Ref: session.Ref{Session: "s1"}, RequestID: requestID, Answers: answers}
}

func approvalAnswer(id string) execution.Answer {
	return execution.Answer{ID: id, Verdict: execution.Approve}
}

// A turn with answers continues at the pending step with the prior results. No other step runs again.
// Req: AD-26, AD-32
func TestTurn_ContinuesWithAnswersWhereItStopped(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	core, logs := observer.New(zap.InfoLevel)
	logTo(t, runner, core)
	rig.makeResearchWait(approvalCall())
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, []string{
		"route routing_decision research", "execute step_started research", "execute tool_call_pending research", "execute step_finished research",
		"aggregate aggregate", "input_required turn_result",
	}, eventSummary(events)[5:])
	require.Equal(t, inputRequired, turnResult(events).GetOutcome())
	require.Empty(t, cmp.Diff([]*troupev1.PendingCall{approvalCall()}, turnResult(events).GetPending(), protocmp.Transform(),
		protocmp.IgnoreFields(&troupev1.PendingCall{}, "until")))
	require.Equal(t, session.InputRequired, rig.state(t, "s1"))

	answer := answerRequest("r2", execution.Answer{ID: "1-2-2", Verdict: execution.Deny, Text: "Not today: secret words.", By: "mallory", Late: true})
	answer.Auth.Actor = "alice"
	on := runToEnd(t, runner, answer)
	require.Equal(t, []string{
		"initialize turn_started", "plan plan",
		"route routing_decision research", "execute step_started research", "execute step_finished research",
		"route routing_decision synthesis", "execute step_started synthesis", "execute step_finished synthesis",
		"aggregate aggregate", "complete turn_result",
	}, eventSummary(durableEvents(on)))
	want := &troupev1.CallAnswer{
		Id: "1-2-2", Verdict: troupev1.CallVerdict_CALL_VERDICT_DENY, Text: "Not today: secret words.", By: "alice",
		Digest: stepjournal.CallDigest("send_mail", `{"to":"bob@example.com"}`),
	}
	begin := on[0].GetTurnStarted()
	require.Equal(t, events[0].GetTurnStarted().GetTurnId(), begin.GetContinuesTurnId())
	require.Equal(t, "research-assistant", begin.GetTarget())
	require.Equal(t, "What may an agent write?", begin.GetText())
	require.Empty(t, cmp.Diff([]*troupev1.CallAnswer{want}, begin.GetAnswers(), protocmp.Transform()))
	require.EqualValues(t, 2, on[0].GetTurn())
	require.NotEqual(t, events[0].GetTraceId(), on[0].GetTraceId())
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Empty(t, turnResult(on).GetPending())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, on[len(on)-2].GetAggregate().GetAgents())

	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
	steps := rig.receivedSteps()
	waited, again, next := steps[1], steps[2], steps[3]
	require.EqualValues(t, 2, again.GetStep())
	require.EqualValues(t, 2, again.GetAttempt(), "it has a journal")
	require.Empty(t, cmp.Diff([]*troupev1.CallAnswer{want}, again.GetAnswers(), protocmp.Transform()))
	require.Empty(t, cmp.Diff(historyTexts(waited), historyTexts(again)), "the same history")
	require.Empty(t, cmp.Diff(waited.GetPrior(), again.GetPrior(), protocmp.Transform(), protocmp.IgnoreFields(&troupev1.StepResult{}, "inherited")))
	require.True(t, again.GetPrior()[0].GetInherited())
	require.EqualValues(t, 1, next.GetAttempt())
	require.Empty(t, next.GetAnswers(), "they are for one step")

	lines := logs.FilterMessage("pending call answered").All()
	require.Len(t, lines, 1)
	fields := lines[0].ContextMap()
	require.Equal(t, []any{"s1", "1-2-2", "send_mail", "deny", "alice", false},
		[]any{fields["session"], fields["call"], fields["tool"], fields["verdict"], fields["by"], fields["late"]})
	require.NotContains(t, fmt.Sprint(fields), "secret")
	require.NotContains(t, fmt.Sprint(fields), "bob@example.com")
	require.Empty(t, cmp.Diff(durableEvents(on), durableEvents(runToEnd(t, runner, answer)), protocmp.Transform()), "the same request is the same turn")
	require.Len(t, rig.askedAgents(), 4)
}

// Calls without an answer stay pending and can be answered in the next turn.
//
// Req: LP-32
func TestTurn_WaitsAgainForUnansweredCalls(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	other := approvalCall()
	other.Id, other.Needs = "1-2-3", troupev1.CallNeed_CALL_NEED_RESULT
	rig.makeResearchWait(approvalCall(), other)
	runToEnd(t, runner, textRequest("s1", "r1"))
	rig.makeResearchWait(other)
	first := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	require.Equal(t, inputRequired, turnResult(first).GetOutcome())
	require.Equal(t, "1-2-3", turnResult(first).GetPending()[0].GetId())
	second := runToEnd(t, runner, answerRequest("r3", execution.Answer{ID: "1-2-3", Verdict: execution.Succeed, Text: "42"}))
	require.Equal(t, outcomeCompleted, turnResult(second).GetOutcome(), "%v", turnResult(second))
	require.Equal(t, first[0].GetTurnStarted().GetTurnId(), second[0].GetTurnStarted().GetContinuesTurnId())
	require.Equal(t, []string{"coordinator", "research", "research", "research", "synthesis"}, rig.askedAgents())
	require.EqualValues(t, 2, rig.receivedSteps()[3].GetAttempt())
	require.Equal(t, "1-2-3", rig.receivedSteps()[3].GetAnswers()[0].GetId())

	for n, events := range [][]*troupev1.Event{first, second} { // both turns exist, so each request is a repetition
		again := runToEnd(t, runner, []request.Request{
			answerRequest("r2", approvalAnswer("1-2-2")),
			answerRequest("r3", execution.Answer{ID: "1-2-3", Verdict: execution.Succeed, Text: "42"}),
		}[n])
		require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(again), protocmp.Transform()))
	}
	require.Len(t, rig.askedAgents(), 5)
}

func TestRunner_RejectsAnswersWithoutAPendingCall(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	mine := textRequest("s1", "r1")
	mine.User = "ann"
	runToEnd(t, runner, mine)
	for name, c := range map[string]struct {
		change func(*request.Request)
		mode   failure.Mode
		says   string
	}{
		"a target": {func(r *request.Request) { r.Target = "research" }, failure.UserInvalidInput, "target: "},
		"another call": {
			func(r *request.Request) { r.Answers[0].ID = "1-1-9" }, failure.UserInvalidInput,
			`answers[0].id: no call "1-1-9" waits here; waiting: 1-2-2`,
		},
		"another verdict":    {func(r *request.Request) { r.Answers[0].Verdict = execution.Succeed }, failure.UserInvalidInput, "answers[0].verdict"},
		"no session":         {func(r *request.Request) { r.Session = "s9" }, failure.NotFound, "s9"},
		"another user's":     {func(r *request.Request) { r.User = "bob"; r.Answers[0].ID = "1-1-9" }, failure.NotFound, "s1"},
		"a known request id": {func(r *request.Request) { r.RequestID = "r1" }, failure.KeyReused, "another request"},
	} {
		t.Run(name, func(t *testing.T) {
			req := answerRequest("r2", approvalAnswer("1-2-2"))
			req.User = "ann"
			c.change(&req)
			err := rejectionError(t, runner, req)
			require.Equal(t, c.mode, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
		})
	}
	require.Equal(t, session.InputRequired, rig.state(t, "s1"))
	req := answerRequest("r2", approvalAnswer("1-2-2"))
	req.User = "ann"
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, req)).GetOutcome())
	req.Answers = []execution.Answer{{ID: "1-2-2", Verdict: execution.Deny}}
	require.Equal(t, failure.KeyReused, failure.ModeOf(rejectionError(t, runner, req)))
	req.RequestID = "r3"
	err := rejectionError(t, runner, req)
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
}

// A text instead of answers abandons the pending calls.
//
// Req: LP-32
func TestTurn_TextAbandonsPendingCalls(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, textRequest("s1", "r2"))).GetOutcome())
	err := rejectionError(t, runner, answerRequest("r3", approvalAnswer("1-2-2")))
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "nothing waits in the session")
	for _, s := range rig.receivedSteps() {
		require.Empty(t, s.GetAnswers())
	}
}

// Req: OC-33
func TestTurn_AnswerAfterItsDeadlineIsMarkedLate(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	late := approvalCall()
	late.Until = timestamppb.New(time.Now().Add(-time.Second))
	rig.makeResearchWait(late)
	runToEnd(t, runner, textRequest("s1", "r1"))
	runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	require.True(t, rig.receivedSteps()[2].GetAnswers()[0].GetLate())
}

// Of two concurrent requests with answers, only one gets the turn.
func TestRunner_AcceptsOneAnswerPerCall(t *testing.T) {
	rig := newRig(t)
	one, two := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, one, textRequest("s1", "r1"))
	working, _, release := rig.blockResearch()
	first := startRequest(t, one, answerRequest("r2", approvalAnswer("1-2-2")))
	receive(t, working)

	err := rejectionError(t, two, answerRequest("r3", approvalAnswer("1-2-2")))
	require.Equal(t, failure.SessionBusy, failure.ModeOf(err), "%v", err)
	second := make(chan error, 1)
	patient := answerRequest("r3", approvalAnswer("1-2-2"))
	patient.OnBusy = request.Enqueue
	go func() { second <- rejectionError(t, two, patient) }()
	awaitQueue(t, two, 1)
	release()
	require.Equal(t, outcomeCompleted, turnResult(receive(t, first)).GetOutcome())
	err = receive(t, second)
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
}

// The instance that retries a lost step gets the answers too.
func TestTurn_AnswersSurviveALostWorker(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		return s.cutConnections()
	})
	events := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "research", "research", "synthesis"}, rig.askedAgents())
	for n, s := range rig.receivedSteps()[2:4] {
		require.EqualValues(t, n+2, s.GetAttempt())
		require.Len(t, s.GetAnswers(), 1)
	}
}

// The orchestrator that takes over the turn has the answers too.
func TestTurn_AnswersSurviveALostOrchestrator(t *testing.T) {
	rig := newRig(t)
	first := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, first, textRequest("s1", "r1"))
	working, _, release := rig.blockResearch()
	defer release()
	answer := answerRequest("r2", approvalAnswer("1-2-2"))
	runUntilStepStarts(t, first, answer, "research")
	receive(t, working)
	rig.expireLeases()
	rig.setScript("research", nil)

	events := runToEnd(t, rig.newRunner(t, "two"), answer)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.True(t, slices.ContainsFunc(events, func(e *troupev1.Event) bool { return e.GetWarning().GetReason() == "TAKEN_OVER" }))
	require.Equal(t, []string{"coordinator", "research", "research", "research", "synthesis"}, rig.askedAgents())
	for n, s := range rig.receivedSteps()[2:4] {
		require.EqualValues(t, 2, s.GetStep())
		require.EqualValues(t, n+2, s.GetAttempt())
		require.Len(t, s.GetAnswers(), 1)
	}
}

// A routing step that failed before the pending step is not run again.
func TestTurn_AnswersKeepTheDefaultRoute(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.setScript("coordinator", func(s *scriptedStep) error {
		rig.setScript("coordinator", nil)
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.ResourceAPI, "test", "away"))})
	})
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	events := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
	require.EqualValues(t, 2, rig.receivedSteps()[2].GetStep())
	require.EqualValues(t, 2, rig.receivedSteps()[2].GetAttempt())
}

// BeginTurn succeeds but its reply is lost. A repeated request continues the turn.
func TestRunner_ContinuesATurnWithAnswersWhoseBeginWasLost(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	awaitIdle(t, runner)
	replaceRunner(t, runner, func(c *Config) { c.Memory = &firstReplyLostMemory{Memory: runner.cfg.Memory} })
	answer := answerRequest("r2", approvalAnswer("1-2-2"))
	require.ErrorIs(t, rejectionError(t, runner, answer), context.DeadlineExceeded)
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, answer)).GetOutcome())
	require.Equal(t, []string{"coordinator", "research", "research", "synthesis"}, rig.askedAgents())
}

// The orchestrator died before it stored the trace. The turn fails with a clear message, and the session
// accepts a text.
func TestRunner_AbandonsATurnWithAnswersWhoseTraceIsMissing(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	answer := answerRequest("r2", approvalAnswer("1-2-2"))
	seen, err := rig.memory.GetSession(t.Context(), answer.Ref)
	require.NoError(t, err)
	begin := rig.newBegin(answer)
	begin.Predecessor.Continues = seen.WaitingTurn
	begin.Predecessor.Answers, err = pendingcall.CheckAnswers(seen.Pending, answer.Answers, time.Now())
	require.NoError(t, err)
	_, err = rig.memory.BeginTurn(t.Context(), begin)
	require.NoError(t, err)
	err = rejectionError(t, runner, answer)
	require.Equal(t, failure.TraceOrphaned, failure.ModeOf(err), "%v", err)
	rig.expireLeases()
	err = rejectionError(t, runner, answer)
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "send a text instead")
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, textRequest("s1", "r3"))).GetOutcome())
}

// A pending call expires after a week. Later answers are rejected with a clear message.
func TestRunner_RejectsAnswersWhenThePendingTraceIsMissing(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	awaitIdle(t, runner)
	rig.redis.FlushAll()
	err := rejectionError(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
	require.Equal(t, session.InputRequired, rig.state(t, "s1"))
	require.Len(t, rig.askedAgents(), 2)
}
