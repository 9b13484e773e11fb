package scenario

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// Req: OC-1, OC-2, OC-4, RA-5, RA-6
func answersWithSources(t *testing.T, m *rig.Mesh) {
	events := runTurn(t, m, textRequest(question))
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, agentsThatRan(events))
	r := turnResult(events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, r.GetOutcome())
	require.Equal(t, "synthesis", r.GetAgent())
	require.Regexp(t, `\.md:\d+`, r.GetText(), "the answer cites file and line")
	require.Positive(t, r.GetConfidence())
	require.Positive(t, r.GetUsage().GetModelCalls())

	var searched, streamed bool
	for _, e := range events {
		searched = searched || e.GetToolCallFinished().GetTool() == "search_documents"
		streamed = streamed || e.GetTextDelta().GetText() != ""
	}
	require.True(t, searched)
	require.True(t, streamed)
}

// Req: RA-21, RA-23
func secondTurnContinuesTheSession(t *testing.T, m *rig.Mesh) {
	first := textRequest(question)
	require.EqualValues(t, 1, runTurn(t, m, first)[0].GetTurn())
	second := textRequest("And who enforces the epoch of a turn?")
	second.SessionId = first.SessionId
	require.EqualValues(t, 2, runTurn(t, m, second)[0].GetTurn())

	resp, err := m.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: first.SessionId})
	require.NoError(t, err)
	var said []string
	for i, msg := range resp.GetMessages() {
		require.EqualValues(t, i+1, msg.GetSequence())
		said = append(said, msg.GetRole().String()+" "+msg.GetAuthor())
	}
	turn := []string{"ROLE_USER ", "ROLE_ASSISTANT research", "ROLE_ASSISTANT synthesis"}
	require.Equal(t, append(turn, turn...), said)
	s, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: first.SessionId})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_READY, s.GetSession().GetState())
	require.EqualValues(t, 2, s.GetSession().GetTurns())
}

func repeatedRequestReturnsTheSameTurn(t *testing.T, m *rig.Mesh) {
	req := textRequest(question)
	first := runTurn(t, m, req)
	again := runTurn(t, m, req)
	require.Empty(t, cmp.Diff(durableEvents(first), durableEvents(again), protocmp.Transform()), "the same trace, event by event")

	s, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: req.SessionId})
	require.NoError(t, err)
	require.EqualValues(t, 1, s.GetSession().GetTurns())

	other := textRequest("Something else?")
	other.SessionId, other.RequestId = req.SessionId, req.RequestId
	err = requireRejected(t, m, other)
	require.True(t, failure.Is(err, failure.KeyReused), "%v", err)
}

func concurrentRepeatsMakeOneTurn(t *testing.T, m *rig.Mesh) {
	req := textRequest(question)
	traces := make([]string, 16)
	var wg sync.WaitGroup
	for i := range traces {
		wg.Go(func() {
			own := textRequest(question)
			own.SessionId, own.RequestId = req.SessionId, req.RequestId
			events, err := collectEvents(t.Context(), m, own)
			if err != nil || turnResult(events) == nil {
				t.Errorf("caller %d: %v", i, err)
				return
			}
			traces[i] = events[0].GetTraceId()
		})
	}
	wg.Wait()
	for _, trace := range traces {
		require.Equal(t, traces[0], trace)
	}
	s, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: req.SessionId})
	require.NoError(t, err)
	require.EqualValues(t, 1, s.GetSession().GetTurns())
	require.EqualValues(t, 3, s.GetSession().GetMessages())
}

// Req: RA-8, RA-13, RA-14
func vagueQuestionGetsClarified(t *testing.T, m *rig.Mesh) {
	vague := textRequest("Tell me about it")
	events := runTurn(t, m, vague)
	require.Equal(t, []string{"coordinator", "clarification"}, agentsThatRan(events))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, turnResult(events).GetOutcome())
	require.Contains(t, turnResult(events).GetText(), "?")
	s, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: vague.SessionId})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_INPUT_REQUIRED, s.GetSession().GetState())

	reply := textRequest("The epoch of a turn")
	reply.SessionId = vague.SessionId
	events = runTurn(t, m, reply)
	require.Equal(t, []string{"research", "synthesis"}, agentsThatRan(events), "the coordinator's model is not asked")
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
}

// The mesh gives an id to a session without one. Its messages can be listed by role, and it can be deleted. The
// setting --session-retention limits how long an idle session is stored.
// Req: RA-24
func sessionCanBeReadAndDeleted(t *testing.T, m *rig.Mesh) {
	first := textRequest(question)
	first.SessionId = ""
	events := runTurn(t, m, first)
	id := events[0].GetSessionId()
	require.NoError(t, uuid.Validate(id))
	next := textRequest("And who enforces the epoch of a turn?")
	next.SessionId = id
	require.EqualValues(t, 2, runTurn(t, m, next)[0].GetTurn())
	empty := textRequest("")
	empty.SessionId = id
	require.True(t, failure.Is(requireRejected(t, m, empty), failure.UserInvalidInput))

	resp, err := m.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: id})
	require.NoError(t, err)
	roles := map[troupev1.Role]int{}
	for _, said := range resp.GetMessages() {
		roles[said.GetRole()]++
	}
	require.Equal(t, map[troupev1.Role]int{troupev1.Role_ROLE_USER: 2, troupev1.Role_ROLE_ASSISTANT: 4}, roles)

	_, err = m.Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: id})
	require.NoError(t, err)
	_, err = m.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: id})
	require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.NotFound, failure.SessionDeleted), "%v", err)
	_, err = m.Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: uuid.NewString()})
	require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.NotFound), "%v", err)
}

func requestCanTargetAnAgent(t *testing.T, m *rig.Mesh) {
	req := textRequest(question)
	req.Target = "research"
	events := runTurn(t, m, req)
	require.Equal(t, []string{"research"}, agentsThatRan(events))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
}

func watchStartsAfterAnySequence(t *testing.T, m *rig.Mesh) {
	all := durableEvents(runTurn(t, m, textRequest(question)))
	trace := all[0].GetTraceId()
	for after := range len(all) + 1 {
		got := []*troupev1.Event{}
		for e, err := range m.Watch(t.Context(), trace, uint64(after)) {
			require.NoError(t, err)
			got = append(got, e)
		}
		got = durableEvents(got) // the orchestrator that ran the turn still has the text deltas for a moment
		require.Empty(t, cmp.Diff(all[after:], got, protocmp.Transform()), "after %d", after)
	}
	record, err := m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: trace})
	require.NoError(t, err)
	require.EqualValues(t, len(all), record.GetTrace().GetLastSequence())
	require.Equal(t, troupev1.TraceState_TRACE_STATE_ENDED, record.GetTrace().GetState())
	require.Empty(t, cmp.Diff(turnResult(all), record.GetTrace().GetResult(), protocmp.Transform()))
}

// The client disconnects in the middle of the turn. The turn completes while another client watches all of it
// live.
func turnOutlivesItsClient(t *testing.T, m *rig.Mesh) {
	resume := pauseWorker(t, m, "research")
	req := textRequest(question)
	ctx, leave := context.WithCancel(t.Context())
	var trace string
	for e, err := range m.Turn(ctx, req) {
		require.NoError(t, err)
		if trace = e.GetTraceId(); e.GetWarning().GetReason() == "WAITING" {
			break
		}
	}
	leave()

	var events []*troupev1.Event
	for e, err := range m.Watch(t.Context(), trace, 0) {
		require.NoError(t, err)
		if e.GetWarning().GetReason() == "WAITING" {
			resume()
		}
		events = append(events, e)
	}
	checkTrace(t, events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
}

// With on_disconnect CANCEL the turn ends 2 s after its client has gone, although another client without it watches.
func turnEndsWithItsClient(t *testing.T, m *rig.Mesh) {
	resume := pauseWorker(t, m, "research")
	defer resume()
	req := textRequest(question)
	req.OnDisconnect = troupev1.OnDisconnect_ON_DISCONNECT_CANCEL
	ctx, leave := context.WithCancel(t.Context())
	var trace string
	for e, err := range m.Turn(ctx, req) {
		require.NoError(t, err)
		if trace = e.GetTraceId(); e.GetWarning().GetReason() == "WAITING" {
			break
		}
	}
	leave()
	var events []*troupev1.Event
	for e, err := range m.Watch(t.Context(), trace, 0) {
		require.NoError(t, err)
		events = append(events, e)
	}
	checkTrace(t, events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, turnResult(events).GetOutcome())
	require.Contains(t, turnResult(events).GetFailure().GetMessage(), "its client has gone")
}

func secondTurnIsRejectedWhileBusy(t *testing.T, m *rig.Mesh) {
	resume := pauseWorker(t, m, "research")
	first := textRequest(question)
	second := textRequest("And another thing?")
	second.SessionId = first.SessionId
	asked := false
	var events []*troupev1.Event
	for e, err := range m.Turn(t.Context(), first) {
		require.NoError(t, err)
		events = append(events, e)
		if e.GetWarning().GetReason() == "WAITING" {
			err := requireRejected(t, m, second)
			require.True(t, failure.Is(err, failure.SessionBusy), "%v", err)
			require.Equal(t, e.GetTraceId(), failureFact(err, "trace_id"))
			asked = true
			resume()
		}
	}
	require.True(t, asked)
	checkTrace(t, events)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
	runTurn(t, m, second)
}

// pauseWorker pauses the worker of an agent, so that a turn waits for it until resume is called.
func pauseWorker(t *testing.T, m *rig.Mesh, agent string) (resume func()) {
	t.Helper()
	lifecycle := troupev1.NewLifecycleServiceClient(m.DialAs(identity.ID{Role: identity.Orchestrator}, rig.Worker(agent)))
	_, err := lifecycle.Pause(t.Context(), &troupev1.PauseRequest{Reason: "scenario"})
	require.NoError(t, err)
	return func() {
		_, err := lifecycle.Resume(t.Context(), &troupev1.ResumeRequest{})
		require.NoError(t, err)
	}
}
