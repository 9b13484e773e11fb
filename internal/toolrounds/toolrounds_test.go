package toolrounds_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// lookupRound returns a round with one call of this id.
func lookupRound(id string) []conversation.Message {
	asks := conversation.Assistant("research", "")
	asks.ToolCalls = []conversation.ToolCall{{ID: id, Name: "lookup"}}
	return []conversation.Message{asks, {Role: conversation.RoleTool, ToolCallID: id, Text: "found by " + id}}
}

// sessionMessages returns the messages 3 to 6 of a session.
func sessionMessages() []conversation.Message {
	messages := []conversation.Message{
		conversation.User("a"), conversation.Assistant("research", "A."), conversation.User("b"), conversation.Assistant("research", "B."),
	}
	for i := range messages {
		messages[i].Sequence = int64(i + 3)
	}
	return messages
}

func textsOf(messages []conversation.Message) []string {
	var texts []string
	for _, m := range messages {
		text := m.Text
		for _, c := range m.ToolCalls {
			text += "call " + c.ID
		}
		texts = append(texts, text)
	}
	return texts
}

// Req: LP-45
func TestMerge(t *testing.T) {
	half := lookupRound("half")[:1]
	for name, c := range map[string]struct {
		rounds []conversation.Rounds
		want   []string
	}{
		"none": {nil, []string{"a", "A.", "b", "B."}},
		"they follow the message that they name": {
			[]conversation.Rounds{{After: 3, Messages: lookupRound("1")}, {After: 5, Messages: lookupRound("2")}},
			[]string{"a", "call 1", "found by 1", "A.", "b", "call 2", "found by 2", "B."},
		},
		"two steps after the same message": {
			[]conversation.Rounds{{After: 5, Step: 1, Messages: lookupRound("1")}, {After: 5, Step: 2, Messages: lookupRound("2")}},
			[]string{"a", "A.", "b", "call 1", "found by 1", "call 2", "found by 2", "B."},
		},
		"the message is not there": {
			[]conversation.Rounds{{After: 2, Messages: lookupRound("1")}, {After: 7, Messages: lookupRound("2")}},
			[]string{"a", "A.", "b", "B."},
		},
		"one is not whole": {
			[]conversation.Rounds{{After: 3, Messages: half}, {After: 5, Messages: lookupRound("2")}},
			[]string{"a", "A.", "b", "call 2", "found by 2", "B."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, textsOf(toolrounds.Merge(sessionMessages(), c.rounds)))
		})
	}
}

// Models number their calls anew in each step, but providers require that ids differ.
func TestMerge_RenamesCallsWithTheSameID(t *testing.T) {
	given := []conversation.Rounds{{After: 3, Messages: lookupRound("1")}, {After: 5, Messages: lookupRound("1")}, {After: 6, Messages: lookupRound("1")}}
	all := toolrounds.Merge(sessionMessages(), given)
	require.NoError(t, conversation.CheckRounds(all))
	var ids []string
	for _, m := range all {
		if m.Role == conversation.RoleTool {
			ids = append(ids, m.ToolCallID)
		}
	}
	require.Equal(t, []string{"1", "1_2", "1_3"}, ids)
	require.Equal(t, "1", given[1].Messages[1].ToolCallID, "what was given is unchanged")
	require.Equal(t, all, toolrounds.Merge(sessionMessages(), given))
}

// Whole rounds at the end are kept, as many as a commit may have.
func TestLatest(t *testing.T) {
	var all []conversation.Message
	for n := range memory.MaxWindow {
		asks := conversation.Assistant("research", "")
		asks.ToolCalls = []conversation.ToolCall{{ID: strconv.Itoa(n), Name: "lookup"}}
		all = append(all, asks, conversation.Message{Role: conversation.RoleTool, ToolCallID: asks.ToolCalls[0].ID})
	}
	kept := toolrounds.Latest(all)
	require.Len(t, kept, memory.MaxWindow)
	require.Equal(t, all[len(all)-1], kept[memory.MaxWindow-1].Message)

	for i := range all {
		all[i].Text = strings.Repeat("a", 100<<10)
	}
	kept = toolrounds.Latest(all)
	size := 0
	for _, r := range kept {
		size += conversation.Size(r.Message)
	}
	require.Zero(t, len(kept)%2, "a round is kept whole")
	require.LessOrEqual(t, size, memory.MaxWindowBytes)
	require.Greater(t, size, memory.MaxWindowBytes-(300<<10))

	one := all[:1:1]
	one[0].ToolCalls = nil
	for n := range memory.MaxWindow {
		one[0].ToolCalls = append(one[0].ToolCalls, conversation.ToolCall{ID: strconv.Itoa(n), Name: "lookup"})
		one = append(one, conversation.Message{Role: conversation.RoleTool, ToolCallID: strconv.Itoa(n)})
	}
	require.Empty(t, toolrounds.Latest(one), "the last round alone is longer")
	require.Empty(t, toolrounds.Latest(nil))
}

// Req: LP-45
func TestVisible(t *testing.T) {
	prior := []execution.Result{{Step: 1}}
	for name, c := range map[string]struct {
		prior  []execution.Result
		rounds conversation.Rounds
		more   []conversation.Rounds
		want   bool
	}{
		"of an earlier turn":                        {nil, conversation.Rounds{Turn: 1, Step: 1, After: 3}, nil, true},
		"of a step whose result was given":          {prior, conversation.Rounds{Turn: 2, Step: 1, After: 5}, nil, true},
		"of a step in another branch":               {prior, conversation.Rounds{Turn: 2, Step: 2, After: 5}, nil, false},
		"of a later turn":                           {nil, conversation.Rounds{Turn: 3, Step: 1, After: 6}, nil, false},
		"of the turn that this one continues":       {prior, conversation.Rounds{Turn: 1, Step: 1, After: 5}, nil, true},
		"of another branch of that turn":            {prior, conversation.Rounds{Turn: 1, Step: 2, After: 5}, nil, false},
		"of a step that runs again after a resume":  {nil, conversation.Rounds{Turn: 1, Step: 1, After: 5}, nil, false},
		"of a step that has run again in this turn": {prior, conversation.Rounds{Turn: 1, Step: 1, After: 5}, []conversation.Rounds{{Turn: 2, Step: 1, After: 5}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			step := execution.Step{Turn: 2, Number: 3, History: sessionMessages()[:3], Prior: c.prior} // 5 is the user's message
			all := append([]conversation.Rounds{c.rounds}, c.more...)
			got := toolrounds.Visible(step, all)
			require.Equal(t, c.want, len(got) == len(all))
			require.Subset(t, got, c.more)
		})
	}
}
