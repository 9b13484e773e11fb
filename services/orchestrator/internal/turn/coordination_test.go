package turn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/coordination"
)

// coordinationStates returns the coordination state of a turn after each agent and at the end: iteration, last
// agent, next agent.
func coordinationStates(t *testing.T, r *rig, events []*troupev1.Event) (lines []string, last coordination.State) {
	t.Helper()
	all, err := r.memory.LoadHistory(t.Context(), session.Ref{Session: events[0].GetSessionId()}, 0, 100)
	require.NoError(t, err)
	seen := slices.DeleteFunc(all, func(m conversation.Message) bool { return m.Turn > int(events[0].GetTurn()) })
	s := coordination.Start(coordination.Turn{SessionID: events[0].GetSessionId(), Number: int(events[0].GetTurn()), EntryAgent: "coordinator", Messages: seen})
	for _, e := range events {
		s = s.Apply(e)
		if e.GetRoutingDecision() != nil || e.GetTurnResult() != nil {
			lines = append(lines, fmt.Sprintf("%d %s→%s", s.Iteration, s.LastAgent, s.NextAgent))
		}
	}
	return lines, s
}

// The state has the values of the sample in the requirements, with the workflow of the research assistant. The
// coordinator counts as the last agent each time, whether its model chooses, its model fails, or a rule decides
// instead. Synthesis follows research. (The sample calls the coordinator orchestrator.)
// Req: RA-12, RA-17
func TestTurn_PassesCoordinationStateBetweenAgents(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	sure := 0.8
	rig.setScript("research", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) {
			r.Text, r.Observations, r.ToolsCalled = "I found it.", []string{"Used tool: search_documents\ndocs/a.md:1"}, []string{"search_documents"}
		})
	})
	rig.setScript("synthesis", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.Confidence = "It is so.", &sure })
	})
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	lines, s := coordinationStates(t, rig, events)
	require.Equal(t, []string{"0 →coordinator", "1 coordinator→research", "2 research→synthesis", "3 synthesis→END"}, lines)
	require.Equal(t, "It is so.", *s.FinalAnswer)
	require.InDelta(t, sure, *s.ConfidenceScore, 0)
	require.Len(t, s.Context.PDFResults, 1)
	told := turnResult(events).GetCoordination()
	require.Equal(t, s.Proto().String(), told.String(), "the orchestrator tells the same")

	rig.setScript("coordinator", failingStep(failure.ResourceAPI))
	lines, _ = coordinationStates(t, rig, runToEnd(t, runner, textRequest("s1", "r2")))
	require.Equal(t, []string{"0 synthesis→coordinator", "1 coordinator→research", "2 research→synthesis", "3 synthesis→END"}, lines)

	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.NextAgent = "clarification" })
	})
	rig.setScript("clarification", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.InputRequired = "Which one?", true })
	})
	lines, s = coordinationStates(t, rig, runToEnd(t, runner, textRequest("s1", "r3")))
	require.Equal(t, []string{"0 synthesis→coordinator", "1 coordinator→clarification", "2 clarification→END"}, lines)
	require.True(t, s.ClarificationNeeded)
	require.Equal(t, 1, s.ClarificationCount)
	require.Nil(t, s.ConfidenceScore, "the score of the earlier turn does not apply")

	lines, s = coordinationStates(t, rig, runToEnd(t, runner, textRequest("s1", "r4")))
	require.Equal(t, []string{"1 coordinator→research", "2 research→synthesis", "3 synthesis→END"}, lines, "a rule decides")
	require.False(t, s.ClarificationNeeded)
	require.Zero(t, s.ClarificationCount)
}

// An ended turn logs its complete coordination state, with long texts cut.
// Req: SO-10
func TestRunner_LogsTheCoordinationStateOfAnEndedTurn(t *testing.T) {
	rig := newRig(t)
	runner, _, logs := runAndScrape(t, rig)
	rig.setScript("synthesis", func(s *scriptedStep) error { return s.commitAnswer(strings.Repeat("x", 1000)) })
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	runner.Close(t.Context())
	lines := logs.FilterField(zap.String("event", "orchestration.complete")).All()
	require.Len(t, lines, 1)
	fields := lines[0].ContextMap()
	require.Equal(t, events[0].GetTraceId(), fields["trace_id"])
	require.Equal(t, events[0].GetTraceId(), fields["root_trace_id"])
	data := fields["data"].(map[string]any)
	require.ElementsMatch(t, []string{
		"messages", "session_id", "next_agent", "last_agent", "clarification_needed", "clarification_count", "missing_context", "context",
		"iteration", "final_answer", "confidence_score",
	}, slices.Collect(maps.Keys(data)))
	require.Equal(t, []any{"s1", "END", "synthesis", 3}, []any{data["session_id"], data["next_agent"], data["last_agent"], data["iteration"]})
	require.Len(t, []rune(data["final_answer"].(string)), 200)
	require.Len(t, data["messages"], 3)
}

// A replica that takes a turn over and a replica that only ends its trace log the same state. The latter omits the
// messages, because it does not read them.
func TestTurn_CoordinationStateSurvivesTakeover(t *testing.T) {
	rig := newRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	told := turnResult(watchedEvents(t, second, ref, 0)).GetCoordination()
	require.Equal(t, []any{int32(3), "synthesis", "END", int32(3)}, []any{told.GetIteration(), told.GetLastAgent(), told.GetNextAgent(), told.GetMessages()})

	awaitIdle(t, second)
	rig.redis.FlushAll() // the turn record of the session is kept for longer
	again := turnResult(runToEnd(t, second, textRequest("s1", "r1"))).GetCoordination()
	require.Equal(t, []any{int32(3), "synthesis", "END"}, []any{again.GetIteration(), again.GetLastAgent(), again.GetNextAgent()})
}
