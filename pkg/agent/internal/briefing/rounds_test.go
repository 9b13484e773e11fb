package briefing_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent/internal/briefing"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

const manyTokens = 1_000_000

// round returns a tool round: one call with the id, and its result of at least 100 bytes.
func round(id string) []conversation.Message {
	asks := conversation.Assistant("research", "")
	asks.ToolCalls = []conversation.ToolCall{{ID: id, Name: "lookup"}}
	return []conversation.Message{asks, {Role: conversation.RoleTool, ToolCallID: id, Text: id + strings.Repeat(".", 100)}}
}

// secondTurn returns a step of a second turn whose agent remembers a round of the first.
func secondTurn() execution.Step {
	said := []conversation.Message{conversation.User("a"), conversation.Assistant("research", "A."), conversation.User("b")}
	for i := range said {
		said[i].Sequence = int64(i + 1)
	}
	return execution.Step{Turn: 2, Number: 1, History: said, Rounds: []conversation.Rounds{
		{Turn: 1, Step: 1, After: 1, Messages: round("old")}, {Turn: 1, Step: 2, After: 1, Messages: round("new")},
	}}
}

// callsIn returns the ids of the calls whose results are in the messages.
func callsIn(messages []conversation.Message) []string {
	var ids []string
	for _, m := range messages {
		if m.Role == conversation.RoleTool {
			ids = append(ids, m.ToolCallID)
		}
	}
	return ids
}

// The oldest rounds are left out first, and a round never in part.
func TestConversation_LimitsRoundsByTokens(t *testing.T) {
	enough := int64(0)
	for _, m := range append(secondTurn().History, round("new")...) {
		enough += conversation.EstimateTokens(m)
	}
	require.Equal(t, []string{"old", "new"}, callsIn(briefing.Conversation(secondTurn(), manyTokens)))
	require.Equal(t, []string{"new"}, callsIn(briefing.Conversation(secondTurn(), enough)))
	require.Empty(t, callsIn(briefing.Conversation(secondTurn(), enough-1)))
	require.Len(t, briefing.Conversation(secondTurn(), 0), 3, "the conversation itself has a limit elsewhere")
}

// What the agent added is everything after what it was given, without its answer.
func TestAdded(t *testing.T) {
	step := secondTurn()
	given := slices.Clip(briefing.Conversation(step, manyTokens))
	answer := conversation.Assistant("research", "B.")
	task := conversation.User("Look it up.")
	for name, c := range map[string]struct {
		messages []conversation.Message
		want     []conversation.Message
	}{
		"nothing":                                {append(given, answer), nil},
		"rounds":                                 {append(append(given, round("x")...), answer), round("x")},
		"a task":                                 {append(append(append(given, task), round("x")...), answer), append([]conversation.Message{task}, round("x")...)},
		"a handler removed what was said before": {append(append(step.History[2:3:3], round("x")...), answer), round("x")},
		"a handler removed the user's message":   {append(round("x"), answer), nil},
		"it ended inside a round":                {append(given, round("x")[:1]...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.ElementsMatch(t, c.want, briefing.Added(step, manyTokens, c.messages))
		})
	}
}

// A turn that continues a failed one, and a second step of the same agent, remember rounds after the same message. They
// are not added again.
func TestAdded_LeavesOutRememberedRounds(t *testing.T) {
	step := secondTurn()
	step.Rounds = append(step.Rounds, conversation.Rounds{Turn: 2, Step: 1, After: 3, Messages: round("before")})
	step.Number = 2
	given := slices.Clip(briefing.Conversation(step, manyTokens))
	require.Equal(t, []string{"old", "new", "before"}, callsIn(given))
	said := append(append(given, round("x")...), conversation.Assistant("research", "B."))
	require.Equal(t, round("x"), briefing.Added(step, manyTokens, said))
	require.Equal(t, round("x"), briefing.Added(step, manyTokens, append(step.History[2:3:3], round("x")...)), "a handler removed them")
}
