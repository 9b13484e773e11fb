package conversation

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var strategies = rapid.SampledFrom([]Strategy{SlidingWindow, Summarize, Hierarchical, ""})

// Req: LP-26
func TestCompact_KeepsLatestMessagesAndWholeRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := conversations.Draw(t, "conversation")
		keep := rapid.IntRange(0, 20).Draw(t, "keep")
		limit := rapid.IntRange(60, 400).Draw(t, "limit")
		given := rapid.SampledFrom([]string{"", "They talked."}).Draw(t, "given")
		c := Compact(all, strategies.Draw(t, "strategy"), keep, given, limit)
		messages := all
		if len(all) > 0 && all[0].Role == RoleSummary {
			messages = all[1:]
		}
		if c.Messages == 0 {
			require.Equal(t, Compaction{}, c)
			require.LessOrEqual(t, roundStart(all, max(0, len(all)-max(1, keep))), len(all)-len(messages), "there was nothing to do")
			return
		}
		gone, left := messages[:c.Messages], messages[c.Messages:]
		require.Equal(t, gone[0].Sequence, c.First)
		require.Equal(t, gone[len(gone)-1].Sequence, c.Last)
		requireWholeRounds(t, left)
		require.GreaterOrEqual(t, len(left), max(1, keep))
		if len(left) > max(1, keep) {
			require.NotEmpty(t, left[0].ToolCalls, "more stay only for a round")
		}
		require.NotEmpty(t, c.Summary)
		require.LessOrEqual(t, len(c.Summary), limit)
		require.True(t, utf8.ValidString(c.Summary))
		require.GreaterOrEqual(t, c.TokensSaved, int64(0))
		require.LessOrEqual(t, c.TokensSaved, countTokens(all))
		if given != "" {
			require.Equal(t, given, c.Summary)
		}
	})
}

// newConversation returns turns that each have a question and an answer.
func newConversation(turns int) []Message {
	var all []Message
	for i := range turns {
		all = append(all, User(fmt.Sprintf("question %d", i)), Assistant("echo", fmt.Sprintf("answer\n%d", i)))
	}
	for i := range all {
		all[i].Sequence = int64(i + 1)
	}
	return all
}

func TestCompact_SummaryNamesAuthors(t *testing.T) {
	all := append(newConversation(2), Message{Role: RoleAssistant, Text: "without an author", Sequence: 5}, Message{
		Role: RoleAssistant, Sequence: 6,
		ToolCalls: []ToolCall{{ID: "1"}},
	},
		Message{Role: RoleTool, Text: "found", Sequence: 7}, User("last"))
	require.Equal(t, "Messages up to 7 are left out.\nUser: question 0\necho: answer 0\nUser: question 1\necho: answer 1\nAI: without an author",
		Compact(all, Summarize, 1, "", 1000).Summary)
	require.Equal(t, "Messages up to 7 are left out.", Compact(all, SlidingWindow, 1, "", 1000).Summary)
	require.Equal(t, "Messages up to 7 are left out.\n1 to 7: User: question 0 … AI: without an author", Compact(all, Hierarchical, 1, "", 1000).Summary)
}

// Req: LP-26
func TestCompact_HierarchicalGroupsTenMessages(t *testing.T) {
	lines := strings.Split(Compact(newConversation(14), Hierarchical, 4, "", 1000).Summary, "\n")
	require.Equal(t, []string{
		"Messages up to 24 are left out.",
		"1 to 10: User: question 0 … echo: answer 4",
		"11 to 20: User: question 5 … echo: answer 9",
		"21 to 24: User: question 10 … echo: answer 11",
	}, lines)
}

func TestCompact_LongSummaryKeepsLatestMessages(t *testing.T) {
	c := Compact(newConversation(100), Summarize, 1, "", 120)
	require.LessOrEqual(t, len(c.Summary), 120)
	require.True(t, strings.HasPrefix(c.Summary, "Messages up to 199 are left out.\n"))
	require.True(t, strings.HasSuffix(c.Summary, "\nUser: question 99"))
}

func TestCompact_ExtendsEarlierSummary(t *testing.T) {
	for before, want := range map[string][]string{
		"They spoke of the sea.\nAnd of sand.":             {"They spoke of the sea.", "And of sand."}, // of a model
		"Messages up to 2 are left out.\nUser: of the sea": {"User: of the sea"},
		"Messages up to 2 are left out.":                   nil, // of a window
		"":                                                 nil,
	} {
		all := append([]Message{{Role: RoleSummary, Sequence: 2, Text: before}}, newConversation(2)[2:]...)
		lines := strings.Split(Compact(all, Summarize, 1, "", 1000).Summary, "\n")
		require.Equal(t, append([]string{"Messages up to 3 are left out."}, append(want, "User: question 1")...), lines)
	}
}
