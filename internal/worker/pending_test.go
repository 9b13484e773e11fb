package worker_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A step whose call waits for an answer ends, and its journal is complete by then. The step of the next turn gets
// the journal and the answer.
func TestExecuteStep_ContinuesWithTheAnswerToAPendingCall(t *testing.T) {
	s := newWorkerEnv(t)
	acted := new(recordingTool)
	model := scripted.New(actCall(), scripted.Say("All done."))
	r := s.start(t, agent.Config{
		Name: "a", Model: model, Tools: []tool.Tool{acted.tool(t, execution.AtMostOnce)},
		Plugins: []hook.Plugin{{Name: "guard", Handlers: []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
			c.Wait("a wants to act.", time.Now().Add(time.Minute))
			return nil
		})}}},
	})

	req := s.beginTurn(t, "a", "s1")
	events, result := readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure())
	require.True(t, result.GetInputRequired())
	require.Len(t, result.GetPending(), 1)
	call := result.GetPending()[0]
	require.Equal(t, []string{"1-1-2", "act", "c1", "a wants to act."}, []string{call.GetId(), call.GetTool(), call.GetCallId(), call.GetReason()})
	pending := 0
	for _, e := range events {
		require.Nil(t, e.GetToolCallStarted())
		if e.GetToolCallPending() != nil {
			pending++
		}
	}
	require.Equal(t, 1, pending)
	stored, _ := s.storedSession(t, "s1")
	require.Equal(t, session.InputRequired, stored.State)
	require.Equal(t, "t1", stored.WaitingTurn)
	require.Empty(t, acted.recordedKeys())

	answer := execution.Answer{ID: "1-1-2", Verdict: execution.Approve}
	begun, err := s.memory.BeginTurn(t.Context(), memory.Begin{
		Ref: session.Ref{Session: "s1"}, TurnID: "t2", TraceID: req.GetTraceId(), Fingerprint: "g", LeaseTTL: time.Minute, Window: 10,
		Predecessor: memory.Predecessor{Continues: "t1", Answers: []execution.Answer{answer}},
	})
	require.NoError(t, err)
	next := s.copyRequest(t, req)
	next.TurnId, next.Turn, next.Epoch, next.Attempt, next.BaseSequence = "t2", 2, begun.Turn.Epoch, 2, begun.Turn.Sequence
	next.Answers = []*troupev1.CallAnswer{{Id: "1-1-2", Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE}}
	_, result = readStep(t, r.execute(t.Context(), t, next))
	require.Nil(t, result.GetFailure())
	require.Equal(t, "All done.", result.GetText())
	require.Len(t, acted.recordedKeys(), 1)
	require.Len(t, model.Requests(), 2, "what the model said is in the journal")
	require.EqualValues(t, 2, result.GetUsage().GetModelCalls())
	stored, _ = s.storedSession(t, "s1")
	require.Equal(t, session.Ready, stored.State)
	require.Empty(t, stored.WaitingTurn)
}

// When a call waits, the worker writes all entries to the journal, even those recorded without a sync. Otherwise
// they would be lost, because no commit stores them.
func TestExecuteStep_JournalsPendingCallsBeforeTheCommit(t *testing.T) {
	s := newWorkerEnv(t)
	const entries = 300 // more than fit in one write
	r := s.start(t, agent.Config{Name: "a", Run: waitingAgent(entries)})
	req := s.beginTurn(t, "a", "s1")
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure())
	begun, err := s.memory.BeginTurn(t.Context(), memory.Begin{
		Ref: session.Ref{Session: "s1"}, TurnID: "t2", TraceID: req.GetTraceId(), Fingerprint: "g", LeaseTTL: time.Minute, Window: 10,
		Predecessor: memory.Predecessor{Continues: "t1", Answers: []execution.Answer{{ID: "1-1-1", Verdict: execution.Approve}}},
	})
	require.NoError(t, err)
	kept, err := s.memory.LoadJournal(t.Context(), memory.Lease{Ref: session.Ref{Session: "s1"}, TurnID: "t2", Epoch: begun.Turn.Epoch}, 1, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(kept), entries)
}

// waitingAgent returns the Run of an agent that records many entries and then waits for an answer.
func waitingAgent(entries int) func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
	return func(_ context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			for n := range entries {
				inv.Step.Journal.Record(execution.Entry{Number: n + 1, Phase: execution.Done, Reply: conversation.Assistant("a", "so")})
			}
			yield(event.Event{Payload: event.TurnResult{Reason: event.InputRequired, Result: execution.Result{
				Text: "It waits.", InputRequired: true, Pending: []execution.Pending{{
					ID: "1-1-1", Tool: "act", Arguments: "{}",
					Needs: execution.NeedApproval,
				}},
			}}}, nil)
		}
	}
}
