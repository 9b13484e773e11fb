package summary

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

func talk(sizes ...int) (all []conversation.Message) {
	for i, n := range sizes {
		all = append(all, conversation.Message{Sequence: int64(i + 1), Role: conversation.RoleUser, Text: strings.Repeat("x", n)})
	}
	return all
}

// Req: LP-26
func TestSelect_ReadsTheOldestMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		messages []conversation.Message
		remove   int64
		want     int
		upTo     int64
	}{
		"all that goes":         {talk(1, 1, 1, 1), 3, 3, 3},
		"nothing goes":          {talk(1, 1), 0, 0, 0},
		"fewer than expected":   {talk(1, 1), 9, 2, 2},
		"no more than its size": {talk(maxRead/2, maxRead/2, 1, 1), 3, 2, 2},
		"one at least":          {talk(maxRead+1, 1), 2, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			read, upTo := Select(tc.messages, tc.remove, conversation.Summarize)
			require.Len(t, read, tc.want)
			require.Equal(t, tc.upTo, upTo)
		})
	}
	summarized := append([]conversation.Message{{Sequence: 9, Role: conversation.RoleSummary, Text: "They talked."}},
		conversation.Message{Sequence: 10, Role: conversation.RoleUser, Text: strings.Repeat("x", maxRead)},
		conversation.Message{Sequence: 11, Role: conversation.RoleUser})
	read, upTo := Select(summarized, 1, conversation.Summarize)
	require.Len(t, read, 2, "the earlier summary is read too, and counts as no message")
	require.EqualValues(t, 10, upTo)
}

// Req: LP-26
func TestSelect_HierarchicalReadsGroupsOfTen(t *testing.T) {
	read, upTo := Select(talk(make([]int, 25)...), 20, conversation.Hierarchical)
	require.EqualValues(t, 20, upTo)
	require.Len(t, read, 1)
	require.Equal(t, []string{"Messages up to 20 are left out.", "1 to 10: ", "11 to 20: "}, strings.Split(read[0].Text, "\n"))
}
