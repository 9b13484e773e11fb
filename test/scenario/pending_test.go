package scenario

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/gate"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
)

// These tests cover calls that wait for a person or a client. They use a workflow whose second step runs the agent
// clerk.

var pendingScenarios = []struct {
	name string
	run  func(*testing.T, *gatedMesh)
}{
	{"ApprovedToolRunsOnce", approvedToolRunsOnce},
	{"DeniedToolDoesNotRun", deniedToolDoesNotRun},
	{"StopVerdictEndsTheTurn", stopVerdictEndsTheTurn},
	{"LateApprovalIsADenial", lateApprovalIsADenial},
	{"TextInputAbandonsThePendingCall", textInputAbandonsThePendingCall},
	{"AnswerToUnknownCallIsRejected", answerToUnknownCallIsRejected},
	{"OnlyOneOfTwoAnswersCounts", onlyOneOfTwoAnswersCounts},
	{"ClientRunsItsOwnTool", clientRunsItsOwnTool},
	{"PendingCallsAreAnsweredInTurn", pendingCallsAreAnsweredInTurn},
	{"CredentialReachesTheWaitingTool", credentialReachesTheWaitingTool},
	{"CredentialRequestSurvivesTheOrchestrator", credentialRequestSurvivesTheOrchestrator},
	{"BranchesWaitForAnswers", branchesWaitForAnswers},
	{"BranchesContinueAfterALostOrchestrator", branchesContinueAfterALostOrchestrator},
	{"BranchesWaitForCredentials", branchesWaitForCredentials},
	{"BranchesStopAndAreAbandoned", branchesStopAndAreAbandoned},
	{"LostSealingKeyIsReplaced", lostSealingKeyIsReplaced},
	{"SealedCredentialIsBoundToItsSession", sealedCredentialIsBoundToItsSession},
	{"LostToolWithCredentialIsNotRepeated", lostToolWithCredentialIsNotRepeated},
	{"PendingApprovalSurvivesAllRestarts", pendingApprovalSurvivesAllRestarts},
	{"LostApprovedToolIsNotRepeated", lostApprovedToolIsNotRepeated},
}

func TestPending_InProcess(t *testing.T) {
	t.Parallel()
	runPending(t, rig.StartInProcess(t, rig.Config{TestWorkflows: true}))
}

func TestPending_Binaries(t *testing.T) {
	t.Parallel()
	runPending(t, rig.StartBinaries(t, rig.Config{TestWorkflows: true}))
}

const clerkCount = 2

func runPending(t *testing.T, m *rig.Mesh) {
	s := &gatedMesh{m, gate.New(t)}
	for n := range clerkCount {
		s.HostWorker(rig.InputWorker(s.gate, inputagent.Name, n+1))
	}
	s.HostWorker(rig.InputWorker(s.gate, inputagent.ShortTimeoutName, 1))
	for _, p := range pendingScenarios {
		s.awaitInputAgents(t)
		if !t.Run(p.name, func(t *testing.T) { p.run(t, s) }) {
			return // a failed scenario may have left parts stopped
		}
	}
}

func (g *gatedMesh) awaitInputAgents(t *testing.T) {
	t.Helper()
	g.AwaitReady()
	g.Await("every clerk is ready", func() bool {
		for n := range clerkCount { // the registration of a killed worker outlives it, and its successor must replace it
			if !g.IsReady(rig.Part(fmt.Sprintf("%s-%d", inputagent.Name, n+1))) {
				return false
			}
		}
		return len(idleInstances(t, g.Mesh, inputagent.Name)) == clerkCount && len(idleInstances(t, g.Mesh, inputagent.ShortTimeoutName)) == 1
	})
}

// startPending sends the target a request that ends with a pending call. It returns the session, the key at the
// gate, and the events.
func (g *gatedMesh) startPending(t *testing.T, target, verb string) (session, key string, events []*troupev1.Event) {
	t.Helper()
	key = uuid.NewString()
	req := textRequest(verb + " " + key)
	req.Target = target
	events = runTurn(t, g.Mesh, req)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Len(t, turnResult(events).GetPending(), 1)
	return req.GetSessionId(), key, events
}

// verdictRequest returns a request by the user alice that answers a pending call.
func verdictRequest(session, call string, verdict troupev1.CallVerdict, said string) *troupev1.OrchestrateRequest {
	return &troupev1.OrchestrateRequest{
		SessionId: session, RequestId: uuid.NewString(), Auth: &troupev1.Auth{Actor: "alice"},
		Input: &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{Answers: []*troupev1.CallAnswer{{Id: call, Verdict: verdict, Text: said}}}},
	}
}

// pendingID returns the id of the only pending call of a turn.
func pendingID(events []*troupev1.Event) string { return turnResult(events).GetPending()[0].GetId() }

// requireToolRuns checks that the agent called its model once and its tool the given number of times.
func (g *gatedMesh) requireToolRuns(t *testing.T, key string, sent int) {
	t.Helper()
	want := []string{"model"}
	for range sent {
		want = append(want, "tool")
	}
	require.Equal(t, want, g.gate.Callers(key))
}

func (g *gatedMesh) requireAnswer(t *testing.T, events []*troupev1.Event, says string) {
	t.Helper()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, "I was told: "+says, turnResult(events).GetText())
	require.Empty(t, turnResult(events).GetPending())
}

const (
	verdictApproved  = troupev1.CallVerdict_CALL_VERDICT_APPROVE
	verdictDenied    = troupev1.CallVerdict_CALL_VERDICT_DENY
	verdictStop      = troupev1.CallVerdict_CALL_VERDICT_STOP
	verdictSucceeded = troupev1.CallVerdict_CALL_VERDICT_SUCCEED
	verdictFailed    = troupev1.CallVerdict_CALL_VERDICT_FAIL
)

// The turn with the approval continues at the agent that asked and repeats no model call.
// Req: AD-26, AD-32, OC-33
func approvedToolRunsOnce(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, "", "send")
	require.Equal(t, []string{"research", "clerk"}, agentsThatRan(before))
	call := turnResult(before).GetPending()[0]
	require.Equal(t, "send", call.GetTool())
	require.JSONEq(t, `{"key":"`+key+`"}`, call.GetArguments())
	require.Equal(t, troupev1.CallNeed_CALL_NEED_APPROVAL, call.GetNeeds())
	require.Equal(t, "at_most_once", call.GetRisk())
	require.InDelta(t, (5 * time.Minute).Seconds(), time.Until(call.GetUntil().AsTime()).Seconds(), 60)
	seen, err := s.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: session})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_INPUT_REQUIRED, seen.GetSession().GetState())
	require.Equal(t, before[0].GetTurnStarted().GetTurnId(), seen.GetSession().GetWaitingTurnId())
	require.Empty(t, cmp.Diff(turnResult(before).GetPending(), seen.GetSession().GetPending(), protocmp.Transform()))
	s.requireToolRuns(t, key, 0)

	s.gate.Open(key)
	req := verdictRequest(session, call.GetId(), verdictApproved, "")
	events := runTurn(t, s.Mesh, req)
	s.requireAnswer(t, events, "sent")
	s.requireToolRuns(t, key, 1)
	require.Equal(t, []string{"clerk"}, agentsThatRan(events))
	started := events[0].GetTurnStarted()
	require.Equal(t, seen.GetSession().GetWaitingTurnId(), started.GetContinuesTurnId())
	require.Equal(t, "alice", started.GetAnswers()[0].GetBy())
	require.Equal(t, "send "+key, started.GetText())
	seen, err = s.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: session})
	require.NoError(t, err)
	require.Empty(t, seen.GetSession().GetWaitingTurnId())
	require.Empty(t, seen.GetSession().GetPending())

	require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(runTurn(t, s.Mesh, req)), protocmp.Transform()), "the same request is the same turn")
	s.requireToolRuns(t, key, 1)
}

func deniedToolDoesNotRun(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, "", "send")
	denial := verdictRequest(session, pendingID(before), verdictDenied, "not today")
	s.requireAnswer(t, runTurn(t, s.Mesh, denial), "Not run: the user does not allow send: not today")
	s.requireToolRuns(t, key, 0)
}

func stopVerdictEndsTheTurn(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, "", "both")
	events := runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictStop, "enough"))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Contains(t, turnResult(events).GetText(), "enough")
	require.Empty(t, turnResult(events).GetPending(), "nor does the rest of the round run")
	s.requireToolRuns(t, key, 0)
}

// Req: OC-33
func lateApprovalIsADenial(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, inputagent.ShortTimeoutName, "send")
	until := turnResult(before).GetPending()[0].GetUntil().AsTime()
	s.Await("the deadline has passed", func() bool { return time.Now().After(until) })
	events := runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictApproved, ""))
	require.Contains(t, turnResult(events).GetText(), "nobody approved it")
	require.True(t, events[0].GetTurnStarted().GetAnswers()[0].GetLate())
	require.True(t, slices.ContainsFunc(events, func(e *troupev1.Event) bool { return e.GetWarning().GetReason() == "APPROVAL_TIMEOUT" }))
	s.requireToolRuns(t, key, 0)
}

// Req: LP-32
func textInputAbandonsThePendingCall(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, "", "send")
	other := textRequest("Never mind.")
	other.SessionId = session
	require.Equal(t, "I do nothing.", turnResult(runTurn(t, s.Mesh, other)).GetText())
	err := requireRejected(t, s.Mesh, verdictRequest(session, pendingID(before), verdictApproved, ""))
	require.True(t, failure.Is(err, failure.TurnNotOpen), "%v", err)
	s.requireToolRuns(t, key, 0)
}

func answerToUnknownCallIsRejected(t *testing.T, s *gatedMesh) {
	err := requireRejected(t, s.Mesh, verdictRequest(uuid.NewString(), "1-1-2", verdictApproved, ""))
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
	session, key, before := s.startPending(t, "", "send")
	aimed := verdictRequest(session, pendingID(before), verdictApproved, "")
	aimed.Target = inputagent.Name
	for _, req := range []*troupev1.OrchestrateRequest{
		verdictRequest(session, "9-9", verdictApproved, ""), verdictRequest(session, pendingID(before), verdictSucceeded, "sent"), aimed,
	} {
		err := requireRejected(t, s.Mesh, req)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	}
	s.requireToolRuns(t, key, 0)
	s.gate.Open(key)
	s.requireAnswer(t, runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictApproved, "")), "sent")
	s.requireToolRuns(t, key, 1)
}

func onlyOneOfTwoAnswersCounts(t *testing.T, s *gatedMesh) {
	for range 3 {
		session, key, before := s.startPending(t, "", "send")
		s.gate.Open(key)
		var group errgroup.Group
		errs := make([]error, 2)
		for i := range errs {
			group.Go(func() error {
				_, errs[i] = collectEvents(t.Context(), s.Mesh, verdictRequest(session, pendingID(before), verdictApproved, ""))
				return nil
			})
		}
		require.NoError(t, group.Wait())
		if errs[0] != nil {
			errs[0], errs[1] = errs[1], errs[0]
		}
		require.NoError(t, errs[0])
		require.True(t, failure.Is(errs[1], failure.SessionBusy, failure.TurnNotOpen), "%v", errs[1])
		s.requireToolRuns(t, key, 1)
	}
}

// Req: LP-16
func clientRunsItsOwnTool(t *testing.T, s *gatedMesh) {
	session, _, before := s.startPending(t, "", "look")
	require.Equal(t, troupev1.CallNeed_CALL_NEED_RESULT, turnResult(before).GetPending()[0].GetNeeds())
	s.requireAnswer(t, runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictSucceeded, "a cat")), "a cat")
	session, _, before = s.startPending(t, "", "look")
	events := runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictFailed, "the screen is dark"))
	require.Contains(t, turnResult(events).GetText(), "the screen is dark")
}

// Req: LP-32
func pendingCallsAreAnsweredInTurn(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, "", "both")
	s.gate.Open(key)
	events := runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictApproved, ""))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, "screen", turnResult(events).GetPending()[0].GetTool())
	s.requireToolRuns(t, key, 1)
	s.requireAnswer(t, runTurn(t, s.Mesh, verdictRequest(session, pendingID(events), verdictSucceeded, "a cat")), "sent; a cat")
	s.requireToolRuns(t, key, 1)
}

// A pending approval survives the loss of the orchestrator, the memory service, Redis and all workers of its
// agent. No process keeps it in memory only.
func pendingApprovalSurvivesAllRestarts(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, "", "send")
	parts := []rig.Part{rig.Orchestrator, rig.Memory, rig.Redis}
	for n := range clerkCount {
		part, _ := rig.InputWorker(s.gate, inputagent.Name, n+1)
		parts = append(parts, part)
	}
	for _, p := range parts {
		s.Kill(p)
	}
	for _, p := range []int{2, 1, 0, 3, 4} {
		s.Start(parts[p])
	}
	s.awaitInputAgents(t)
	s.gate.Open(key)
	s.requireAnswer(t, runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictApproved, "")), "sent")
	s.requireToolRuns(t, key, 1)
}

// The outcome of the tool is unknown, so the answer says so and the tool does not run again. The call was already
// approved, so the user is not asked again.
func lostApprovedToolIsNotRepeated(t *testing.T, s *gatedMesh) {
	session, key, before := s.startPending(t, "", "send")
	wait := s.startTurn(t, verdictRequest(session, pendingID(before), verdictApproved, ""))
	lost := rig.Part(s.gate.AwaitCall(t, key))
	s.Kill(lost)
	events := wait()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Contains(t, turnResult(events).GetText(), "UNKNOWN_OUTCOME")
	require.Len(t, retractions(events), 1)
	s.requireToolRuns(t, key, 1)
	s.gate.Open(key)
	s.Start(lost)
}
