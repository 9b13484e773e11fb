package conversation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// conversations generates conversations as sessions store them: user messages, answers and tool rounds. Some end
// in the middle of a turn, and some begin with a summary.
var conversations = rapid.Custom(func(t *rapid.T) []Message {
	var all []Message
	add := func(m Message) {
		m.Sequence = int64(len(all) + 3)
		m.Text = rapid.StringN(0, 20, 60).Draw(t, "text")
		all = append(all, m)
	}
	if rapid.Bool().Draw(t, "summary") {
		add(Message{Role: RoleSummary})
	}
	for range rapid.IntRange(0, 12).Draw(t, "turns") {
		add(Message{Role: RoleUser})
		for range rapid.IntRange(0, 2).Draw(t, "rounds") {
			calls := rapid.IntRange(1, 3).Draw(t, "calls")
			call := Message{Role: RoleAssistant, Author: "echo"}
			for i := range calls {
				call.ToolCalls = append(call.ToolCalls, ToolCall{ID: fmt.Sprint(i), Name: "search", Arguments: "{}"})
			}
			add(call)
			for i := range calls {
				add(Message{Role: RoleTool, ToolCallID: fmt.Sprint(i)})
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "answered") > 0 {
			add(Message{Role: RoleAssistant, Author: "echo"})
		}
	}
	return all
})

// requireWholeRounds checks that the messages do not begin inside a tool round.
func requireWholeRounds(t require.TestingT, messages []Message) {
	if len(messages) > 0 {
		require.NotEqual(t, RoleTool, messages[0].Role, "begins inside a tool round")
	}
}

func countTokens(messages []Message) int64 {
	var n int64
	for _, m := range messages {
		n += EstimateTokens(m)
	}
	return n
}

// Req: LP-25, LP-26
func TestWindow_ReturnsLatestMessagesWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := conversations.Draw(t, "conversation")
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		budget := rapid.Int64Range(0, 60).Draw(t, "tokens")
		window := Window(all, limit, budget)

		require.LessOrEqual(t, len(window), len(all))
		require.Equal(t, all[len(all)-len(window):], window, "it is the end")
		require.Equal(t, len(all) == 0, len(window) == 0, "it is empty only when there is nothing")
		requireWholeRounds(t, window)
		if limit == 0 && budget == 0 {
			require.Len(t, window, len(all))
		}
		if n := len(all); n > 0 && all[n-1].Role != RoleTool {
			if limit > 0 {
				require.LessOrEqual(t, len(window), limit)
			}
			if budget > 0 && len(window) > 1 {
				require.LessOrEqual(t, countTokens(window), budget)
			}
		}
		// The window is as long as possible: one more message, with its tool round, would exceed a limit.
		if more := roundStart(all, len(all)-len(window)-1); more >= 0 && len(window) < len(all) {
			longer := all[more:]
			require.True(t, limit > 0 && len(longer) > limit || budget > 0 && countTokens(longer) > budget, "it could hold %d", len(longer))
		}
	})
}

func TestWindow_KeepsLastToolRoundWhole(t *testing.T) {
	all := []Message{
		{Role: RoleUser}, {Role: RoleAssistant, ToolCalls: []ToolCall{{ID: "1"}, {ID: "2"}}}, {Role: RoleTool}, {Role: RoleTool},
	}
	for limit := 1; limit <= 3; limit++ {
		require.Equal(t, all[1:], Window(all, limit, 0), "limit %d", limit)
	}
	require.Equal(t, all, Window(all, 4, 0))
	require.Equal(t, all[2:], Window(all[2:], 1, 0), "results without a call are better than nothing")
}

func TestEstimateTokens_IsAQuarterOfTheBytes(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "a": 1, "abcd": 1, "abcde": 2, "äöü": 2} {
		require.Equal(t, want, EstimateTokens(User(text)), text)
	}
	call := Message{Text: "ab", ToolCalls: []ToolCall{{ID: "not counted", Name: "cd", Arguments: "{}"}, {Name: "e", Arguments: "[]"}}}
	require.Equal(t, 9, Size(call))
	require.EqualValues(t, 3, EstimateTokens(call))
}

// The files that a model reads count as their providers count them: those of tool results, and those whose content is
// there.
//
// Req: CO-74
func TestEstimateTokens_CountsFiles(t *testing.T) {
	for mediaType, want := range map[string]int64{
		"image/png": 1600, "IMAGE/JPEG; q=1": 1600, "application/pdf": 2 * 1600, "audio/wav": 2 * 1600,
		"text/plain; charset=utf-8": 25_000, "application/json": 25_000, "application/zip": 0, "": 0,
	} {
		file := Attachment{MediaType: mediaType, Size: 100_000}
		without := EstimateTokens(Message{Attachments: []Attachment{{MediaType: mediaType}}})
		count := func(m Message) int64 { return EstimateTokens(m) - without }
		require.Equal(t, want, count(Message{Role: RoleTool, Attachments: []Attachment{file}}), mediaType)
		require.Zero(t, count(Message{Role: RoleUser, Attachments: []Attachment{file}}), "the file of an earlier turn")
		file.Data = []byte("x")
		require.Equal(t, want, count(Message{Role: RoleUser, Attachments: []Attachment{file}}))
	}
}
