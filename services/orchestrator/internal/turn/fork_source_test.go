package turn

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// forkRequest returns a request that forks a trace at a step into a new session.
func forkRequest(events []*troupev1.Event, sessionID string, step int) request.Request {
	return request.Request{Ref: session.Ref{Session: sessionID}, RequestID: "f1", Source: request.Source{
		Trace: events[0].GetTraceId(), Step: step,
		IsFork: true,
	}}
}

// sessionTexts returns the texts of the messages of a session.
func (r *rig) sessionTexts(t *testing.T, sessionID string) (all []string) {
	t.Helper()
	messages, err := r.memory.LoadHistory(t.Context(), session.Ref{Session: sessionID}, 0, 100)
	require.NoError(t, err)
	for _, m := range messages {
		all = append(all, m.Text)
	}
	return all
}

// A fork from step 2 of an ended turn continues the conversation in a new session and leaves the original session
// unchanged.
func TestTurn_ForksFromAStepOfAnEarlierTrace(t *testing.T) {
	rig := newThreeStepRig(t)
	runner := rig.newRunner(t, "one")
	runToEnd(t, runner, request.Request{Ref: session.Ref{Session: "s1"}, RequestID: "r0", Text: "Hello."})
	old := runToEnd(t, runner, textRequest("s1", "r1"))
	runToEnd(t, runner, request.Request{Ref: session.Ref{Session: "s1"}, RequestID: "r2", Text: "And now?"})
	_, err := rig.memory.UpdateState(t.Context(), memory.StateUpdate{
		Ref: session.Ref{Session: "s1"}, RequestID: "u", Delta: map[string]json.RawMessage{"topic": json.RawMessage(`"agents"`)},
	})
	require.NoError(t, err)
	before, ran := rig.sessionTexts(t, "s1"), len(rig.askedAgents())

	rig.setScript("research", func(s *scriptedStep) error { return s.commitAnswer("I found something else.") })
	on := runToEnd(t, runner, forkRequest(old, "s2", 2))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"research", "synthesis"}, rig.askedAgents()[ran:])
	first := rig.receivedSteps()[ran]
	require.EqualValues(t, 2, first.GetStep())
	require.EqualValues(t, 1, first.GetAttempt())
	require.Empty(t, first.GetOriginTurnId(), "what it does is done anew")
	greeting := []string{"Hello.", "I am coordinator.", "I am research.", "I am synthesis."}
	require.Equal(t, append(greeting, "What may an agent write?", "I am coordinator."), historyTexts(first))
	require.Equal(t, []string{"I am coordinator."}, priorTexts(first))
	require.Equal(t, append(greeting, "What may an agent write?", "I am coordinator.", "I found something else.", "I am synthesis."), rig.sessionTexts(t, "s2"))
	require.Equal(t, before, rig.sessionTexts(t, "s1"))
	require.Empty(t, cmp.Diff(&troupev1.From{TraceId: old[0].GetTraceId(), Step: 2, Fork: true}, on[0].GetTurnStarted().GetFrom(), protocmp.Transform()))
	state, err := rig.memory.GetState(t.Context(), session.Ref{Session: "s2"})
	require.NoError(t, err)
	require.JSONEq(t, `"agents"`, string(state.Values["topic"]))

	require.Empty(t, cmp.Diff(durableEvents(on), durableEvents(runToEnd(t, runner, forkRequest(old, "s2", 2))), protocmp.Transform()),
		"the same request is the same turn")
	next := runToEnd(t, runner, request.Request{Ref: session.Ref{Session: "s2"}, RequestID: "r2", Text: "Go on."})
	require.Equal(t, outcomeCompleted, turnResult(next).GetOutcome())

	// A fork can be forked again, with another text.
	req := forkRequest(on, "s3", 1)
	req.Text = "May a worker?"
	again := runToEnd(t, runner, req)
	require.Equal(t, outcomeCompleted, turnResult(again).GetOutcome(), "%v", turnResult(again))
	require.Equal(t, append(greeting, "May a worker?", "I am coordinator.", "I found something else.", "I am synthesis."), rig.sessionTexts(t, "s3"))
	require.Equal(t, "May a worker?", again[0].GetTurnStarted().GetText())
}

// A fork begins with the state of the session and its source of untrusted text, even if no copied message names
// the source.
// Req: S14
func TestTurn_ForkKeepsStateAndUntrustedSource(t *testing.T) {
	rig := newThreeStepRig(t)
	runner := rig.newRunner(t, "one")
	old := runToEnd(t, runner, textRequest("s1", "r1"))
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.Untrusted = "I have read it.", "tool page" })
	})
	runToEnd(t, runner, request.Request{Ref: session.Ref{Session: "s1"}, RequestID: "r2", Text: "Read it."})

	ran := len(rig.askedAgents())
	on := runToEnd(t, runner, forkRequest(old, "s2", 2))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, "tool page", conversation.UntrustedSource(wire.MessagesFromProto(rig.receivedSteps()[ran].GetHistory())))
	seen, err := rig.memory.GetState(t.Context(), session.Ref{Session: "s2"})
	require.NoError(t, err)
	require.Equal(t, "tool page", seen.Untrusted)
}

// A fork inherits a failure that the earlier turn handled. A cancelled turn can be forked like any other.
func TestTurn_ForksAfterAHandledFailure(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, survivingFlow)
	rig.setScript("research", failingStep(failure.AgentLogic))
	runner := rig.newRunner(t, "one")
	old := runToEnd(t, runner, textRequest("s1", "r1"))
	rig.setScript("research", nil)
	on := runToEnd(t, runner, forkRequest(old, "s2", 2))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"research", "synthesis", "synthesis"}, rig.askedAgents())
	on = runToEnd(t, runner, forkRequest(old, "s3", 1))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"research", "synthesis"}, rig.askedAgents()[3:])
}

// A replica that takes over a fork has all the data with which the fork began.
func TestTurn_ForkSurvivesTakeover(t *testing.T) {
	rig := newThreeStepRig(t)
	old := runToEnd(t, rig.newRunner(t, "zero"), textRequest("s1", "r1"))
	_, ref, _ := rig.loseOwnerDuringResearch(t, forkRequest(old, "s2", 2))
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "synthesis", "research", "research", "synthesis"}, rig.askedAgents())
	require.Equal(t, []string{"What may an agent write?", "I am coordinator.", "I am research.", "I am synthesis."}, rig.sessionTexts(t, "s2"))
}

func TestRunner_RejectsInvalidForks(t *testing.T) {
	rig := newThreeStepRig(t)
	runner := rig.newRunner(t, "one")
	old := runToEnd(t, runner, textRequest("s1", "r1"))
	withFile := textRequest("s4", "r1")
	withFile.Files = []conversation.Attachment{{Name: "a.txt", MediaType: "text/plain", Data: []byte("pages")}}
	filed := runToEnd(t, runner, withFile)
	rig.setScript("research", failingStep(failure.ResourceAPI))
	broken := runToEnd(t, runner, textRequest("s5", "r1"))
	ran := len(rig.askedAgents())
	for name, c := range map[string]struct {
		req  request.Request
		mode failure.Mode
		says string
	}{
		"its own session":    {forkRequest(old, "s1", 2), failure.KeyReused, "session s1 exists already"},
		"a known session":    {forkRequest(old, "s4", 2), failure.KeyReused, "session s4 exists already"},
		"a step beyond":      {forkRequest(old, "s9", 4), failure.UserInvalidInput, "from.step: the trace has no step 4; its last one is 3"},
		"beyond the failure": {forkRequest(broken, "s9", 3), failure.UserInvalidInput, "no step 3; its last one is 2"},
		"files left behind":  {forkRequest(filed, "s9", 2), failure.UserInvalidInput, "parts: "},
		"another user's": {
			request.Request{Ref: session.Ref{Session: "s9"}, RequestID: "f", User: "bob", Source: request.Source{
				Trace: old[0].GetTraceId(), Step: 2,
				IsFork: true,
			}},
			failure.NotFound, "no trace",
		},
		"with another target": {
			request.Request{Ref: session.Ref{Session: "s9"}, RequestID: "f", Target: "w", Source: request.Source{
				Trace: old[0].GetTraceId(), Step: 2,
				IsFork: true,
			}},
			failure.UserInvalidInput, "target",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := rejectionError(t, runner, c.req)
			require.Equal(t, c.mode, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
		})
	}
	require.Len(t, rig.askedAgents(), ran)

	req := forkRequest(filed, "s6", 3)
	req.Files = withFile.Files
	on := runToEnd(t, runner, req)
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Len(t, on[0].GetTurnStarted().GetAttachments(), 1)
}
