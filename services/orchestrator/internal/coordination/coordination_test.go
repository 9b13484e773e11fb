package coordination

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func messageInTurn(turn int, m conversation.Message) conversation.Message { m.Turn = turn; return m }

func stepFinishedEvent(r execution.Result) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: wire.ResultToProto(r)}}}
}

func turnEndedEvent(r *troupev1.TurnResult) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: r}}
}

// At the start of a session, every field of the state has its documented initial value. The first agent of the
// sample workflow is the coordinator.
// Req: RA-2, RA-3
func TestStart_SetsInitialValuesOfAllFields(t *testing.T) {
	mine := []conversation.Message{messageInTurn(1, conversation.User("What may an agent write?"))}
	s := Start(Turn{SessionID: "s1", Number: 1, EntryAgent: "coordinator", Messages: mine})
	require.Equal(t, mine, s.Messages)
	data := s.LogFields()
	data["messages"] = len(data["messages"].([]any))
	require.Equal(t, map[string]any{
		"messages": 1, "session_id": "s1", "next_agent": "coordinator", "last_agent": "", "clarification_needed": false, "clarification_count": 0,
		"missing_context": []any{}, "iteration": 0, "final_answer": nil, "confidence_score": nil,
		"context": map[string]any{"observations": 0, "pdf_results": 0, "web_results": 0, "tool_history": []string{}},
	}, data)
	require.Equal(t, Context{Observations: []string{}, PDFResults: []string{}, WebResults: []string{}, ToolHistory: []string{}}, s.Context)
}

// A turn knows which agent spoke last in the previous turn, but not the outcome of that turn.
func TestStart_KeepsOnlyTheLastSpeakerOfEarlierTurns(t *testing.T) {
	s := Start(Turn{SessionID: "s1", Number: 3, EntryAgent: "coordinator", Messages: []conversation.Message{
		messageInTurn(1, conversation.User("Tell me about it")), messageInTurn(1, conversation.Assistant("clarification", "About what?")),
		messageInTurn(2, conversation.User("It!")), messageInTurn(2, conversation.Assistant("clarification", "About which it?")),
		messageInTurn(3, conversation.User("That one")), messageInTurn(3, conversation.Assistant("research", "of this turn")),
	}})
	require.Equal(t, "clarification", s.LastAgent)
	require.Nil(t, s.FinalAnswer)
	require.Nil(t, s.ConfidenceScore)
	require.Zero(t, s.Iteration)
	require.False(t, s.ClarificationNeeded)

	s = s.Apply(stepFinishedEvent(execution.Result{Step: 1, Agent: "clarification", Text: "Which?", InputRequired: true}))
	require.True(t, s.ClarificationNeeded)
	require.Equal(t, 3, s.ClarificationCount, "the third in a row")
	require.Equal(t, []string{"Which?"}, s.MissingContext)
}

// The state keeps observations with their source. It includes the observations of the turn that this turn
// continues.
func TestState_CollectsObservations(t *testing.T) {
	inherited := execution.Result{Step: 1, Agent: "a", Observations: []string{"Used tool: web_search\nsnow"}, ToolsCalled: []string{"web_search"}}
	start := Start(Turn{EntryAgent: "a", Inherited: []execution.Result{inherited}})
	one := start.Apply(stepFinishedEvent(execution.Result{
		Step: 2, Agent: "b", Observations: []string{
			"Used tool: search_documents\ndocs/a.md:1",
			"Used tool: look\nso",
		}, ToolsCalled: []string{"search_documents", "look", "search_documents"},
	}))
	require.Equal(t, Context{
		Observations: []string{"Used tool: web_search\nsnow", "Used tool: search_documents\ndocs/a.md:1", "Used tool: look\nso"},
		PDFResults:   []string{"Used tool: search_documents\ndocs/a.md:1"}, WebResults: []string{"Used tool: web_search\nsnow"},
		ToolHistory: []string{"web_search", "search_documents", "look"},
	}, one.Context)
	require.Equal(t, 2, one.Iteration)
	require.Len(t, start.Context.Observations, 1, "a state is a value")
	require.Equal(t, []string{"web_search"}, start.Context.ToolHistory)
}

// A failed turn has no final answer. Its state still names the agent that was next.
func TestState_HasNoAnswerAfterAFailedTurn(t *testing.T) {
	s := Start(Turn{}).Apply(
		&troupev1.Event{Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Entry: "coordinator"}}},
		&troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{Target: "research"}}},
		turnEndedEvent(&troupev1.TurnResult{Failure: &troupev1.Failure{Message: "lost"}}),
	)
	require.Equal(t, "research", s.NextAgent)
	require.Nil(t, s.FinalAnswer)
}

func TestState_IsLoggedWithoutLongTexts(t *testing.T) {
	long := strings.Repeat("x", 1000)
	s := Start(Turn{EntryAgent: "a", Messages: []conversation.Message{conversation.User(long)}}).Apply(
		stepFinishedEvent(execution.Result{
			Agent: "a", Text: long, InputRequired: true,
			Observations: []string{long},
		}), turnEndedEvent(&troupev1.TurnResult{Text: long}),
	)
	data := s.LogFields()
	require.Len(t, []rune(data["final_answer"].(string)), maxText)
	require.Len(t, []rune(data["missing_context"].([]any)[0].(string)), maxText)
	require.NotContains(t, data["messages"].([]any)[0], "text")
	require.NotContains(t, s.Proto().String(), "xxx")
}
