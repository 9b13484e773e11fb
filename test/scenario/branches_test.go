package scenario

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
)

// These tests cover calls that wait in parallel branches. They are part of runPending, and use a workflow in which two
// clerkCount and a lookup run at once.

// startBranches sends a request whose two clerks end with a pending call each. The lookup beside them has ended.
func (g *gatedMesh) startBranches(t *testing.T, verb string, ends troupev1.TurnOutcome) (session, key string, events []*troupev1.Event) {
	t.Helper()
	key = uuid.NewString()
	req := textRequest(verb + " " + key)
	req.Target = "offices"
	events = runTurn(t, g.Mesh, req)
	require.Equal(t, ends, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Len(t, turnResult(events).GetPending(), 2)
	ran := agentsThatRan(events)
	slices.Sort(ran)
	require.Equal(t, []string{inputagent.Name, inputagent.Name, "research"}, ran)
	return req.GetSessionId(), key, events
}

// restartAll kills the orchestrator, the memory service, Redis and the clerks, and starts them again.
func (g *gatedMesh) restartAll(t *testing.T) {
	t.Helper()
	parts := []rig.Part{rig.Redis, rig.Memory, rig.Orchestrator}
	for n := range clerkCount {
		part, _ := rig.InputWorker(g.gate, inputagent.Name, n+1)
		parts = append(parts, part)
	}
	for _, p := range slices.Backward(parts) {
		g.Kill(p)
	}
	for _, p := range parts {
		g.Start(p)
	}
	g.awaitInputAgents(t)
}

// requireBranchCalls checks that each clerk asked its model once, and how often their tools ran.
func (g *gatedMesh) requireBranchCalls(t *testing.T, key string, tools int) {
	t.Helper()
	want := []string{"model", "model"}
	for range tools {
		want = append(want, "tool")
	}
	require.Equal(t, want, g.gate.Callers(key))
}

// Calls in two branches wait together, across the loss of every process. An answer to one of them continues its branch,
// and the other waits again. When all are answered, the join runs. The third branch runs once.
// Req: AD-32, OC-27, OC-33
func branchesWaitForAnswers(t *testing.T, s *gatedMesh) {
	session, key, before := s.startBranches(t, "send", troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED)
	pending := turnResult(before).GetPending()
	require.Equal(t, "send waits for an approval.", turnResult(before).GetText())
	seen, err := s.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: session})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_INPUT_REQUIRED, seen.GetSession().GetState())
	require.Empty(t, cmp.Diff(pending, seen.GetSession().GetPending(), protocmp.Transform()))
	s.requireBranchCalls(t, key, 0)

	s.restartAll(t)
	s.gate.Open(key)
	one := runTurn(t, s.Mesh, verdictRequest(session, pending[1].GetId(), verdictApproved, ""))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, turnResult(one).GetOutcome(), "%v", turnResult(one))
	require.Len(t, turnResult(one).GetPending(), 1)
	require.NotContains(t, agentsThatRan(one), "research")
	s.requireBranchCalls(t, key, 1)

	s.restartAll(t)
	req := verdictRequest(session, pendingID(one), verdictDenied, "once is enough")
	both := runTurn(t, s.Mesh, req)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(both).GetOutcome(), "%v", turnResult(both))
	require.Equal(t, []string{inputagent.Name, "synthesis"}, agentsThatRan(both))
	require.Len(t, stepTexts(both, inputagent.Name), 1)
	require.Contains(t, stepTexts(both, inputagent.Name)[0], "once is enough")
	require.Equal(t, []string{"I was told: sent"}, stepTexts(one, inputagent.Name)[1:], "the first result waited again")
	s.requireBranchCalls(t, key, 1)
	require.Empty(t, cmp.Diff(durableEvents(both), durableEvents(runTurn(t, s.Mesh, req)), protocmp.Transform()), "the same request is the same turn")
}

// stepTexts returns the results of the steps of an agent, those of waiting calls first.
func stepTexts(events []*troupev1.Event, agent string) (texts []string) {
	for _, e := range events {
		if r := e.GetStepFinished().GetResult(); r != nil && e.GetAgent() == agent {
			texts = append(texts, r.GetText())
		}
	}
	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) })
	return texts
}

// The orchestrator is lost while the branches continue with their answers. Its successor has the answers.
func branchesContinueAfterALostOrchestrator(t *testing.T, s *gatedMesh) {
	session, key, before := s.startBranches(t, "look", troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED)
	req := verdictRequest(session, pendingID(before), verdictSucceeded, "a cat")
	req.GetAnswers().Answers = append(req.GetAnswers().Answers, &troupev1.CallAnswer{
		Id: turnResult(before).GetPending()[1].GetId(), Verdict: verdictSucceeded, Text: "a dog",
	})
	stream, err := s.Orchestrate(t.Context(), req)
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	s.Kill(rig.Orchestrator)
	s.Start(rig.Orchestrator)
	s.awaitInputAgents(t)
	events := runTurn(t, s.Mesh, req)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	texts := stepTexts(events, inputagent.Name)
	slices.Sort(texts)
	require.Equal(t, []string{"I was told: a cat", "I was told: a dog"}, slices.Compact(texts))
	s.requireBranchCalls(t, key, 0)
}

// Both branches lack a credential. Each answer reaches the worker that asked for it.
// Req: LP-37, LP-40
func branchesWaitForCredentials(t *testing.T, s *gatedMesh) {
	session, key, before := s.startBranches(t, "fetch", authRequired)
	var req *troupev1.OrchestrateRequest
	for _, call := range turnResult(before).GetPending() {
		sealed, err := client.Seal(session, call, secret.New("sesame"))
		require.NoError(t, err)
		if req == nil {
			req = callAnswerRequest(session, sealed)
			continue
		}
		req.GetAnswers().Answers = append(req.GetAnswers().Answers, sealed)
	}
	s.gate.Open(key)
	events := runTurn(t, s.Mesh, req)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"model", "model", "tool  sesame", "tool  sesame"}, s.gate.Callers(key))
}

// A STOP verdict in a branch cancels the turn. A text abandons the calls of all branches.
func branchesStopAndAreAbandoned(t *testing.T, s *gatedMesh) {
	session, key, before := s.startBranches(t, "send", troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED)
	events := runTurn(t, s.Mesh, verdictRequest(session, pendingID(before), verdictStop, "enough"))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	s.requireBranchCalls(t, key, 0)

	session, key, before = s.startBranches(t, "send", troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED)
	other := textRequest("Never mind.")
	other.SessionId = session
	runTurn(t, s.Mesh, other)
	err := requireRejected(t, s.Mesh, verdictRequest(session, pendingID(before), verdictApproved, ""))
	require.True(t, failure.Is(err, failure.TurnNotOpen), "%v", err)
	s.requireBranchCalls(t, key, 0)
}
