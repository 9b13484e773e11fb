package decide

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// A fork of a long conversation gets only as many messages as agents may see.
func TestWindowBefore_KeepsTheLatestAndNamesFiles(t *testing.T) {
	var messages []conversation.Message
	for range 20 {
		messages = append(messages, conversation.User("more"))
	}
	messages[19] = conversation.Message{Role: conversation.RoleUser, Attachments: []conversation.Attachment{{Name: "d.txt", Version: 1}}}
	kept := windowBefore(messages, 5)
	require.Len(t, kept, 5)
	require.Equal(t, "[file d.txt]", kept[4].Text)
	require.Empty(t, kept[4].Attachments)
	require.Len(t, messages[19].Attachments, 1)
	require.Empty(t, windowBefore(nil, 5))
}

// A fork begins with the rounds that happened before its first step, placed after the same messages.
// Req: OC-27, LP-45
func TestForkedHistory_KeepsRoundsBeforeTheFirstStep(t *testing.T) {
	copied := &memory.Copy{
		History:      []conversation.Message{{Sequence: 7, Role: conversation.RoleUser}, {Sequence: 8, Role: conversation.RoleAssistant}},
		StepMessages: []conversation.Message{{Sequence: 10, Role: conversation.RoleAssistant}},
	}
	h := newForkedHistory(copied, conversation.Message{Sequence: 9, Role: conversation.RoleUser}, []execution.Result{{Step: 1}})
	require.Equal(t, []conversation.Rounds{
		{Turn: 0, Step: 2, After: 1},
		{Turn: 1, Step: 1, After: 3},
	}, h.rounds([]conversation.Rounds{
		{Turn: 2, Step: 1, After: 5},  // its message is not copied
		{Turn: 3, Step: 2, After: 7},  // an earlier turn: any step
		{Turn: 4, Step: 1, After: 9},  // an inherited step of the forked turn
		{Turn: 4, Step: 2, After: 10}, // runs again in the fork
	}))
}

// Files stay with their session, so a fork keeps only their names, where a result has no text.
//
// Req: CO-74
func TestForkedHistory_LeavesFilesOfResultsOut(t *testing.T) {
	files := []conversation.Attachment{{Name: "shot.png", MediaType: "image/png", Version: 1}}
	given := []conversation.Rounds{{Turn: 1, Step: 1, After: 7, Messages: []conversation.Message{
		{Role: conversation.RoleTool, Text: "taken", Attachments: files}, {Role: conversation.RoleTool, Attachments: files},
	}}}
	copied := &memory.Copy{History: []conversation.Message{{Sequence: 7, Role: conversation.RoleUser}}}
	h := newForkedHistory(copied, conversation.Message{Sequence: 9, Role: conversation.RoleUser}, nil)
	require.Equal(t, []conversation.Message{
		{Role: conversation.RoleTool, Text: "taken"}, {Role: conversation.RoleTool, Text: "[file shot.png]"},
	}, h.rounds(given)[0].Messages)
	require.Equal(t, files, given[0].Messages[0].Attachments)
}

// The rounds of a fork fit into a copy. The oldest are left out, of whichever agent.
func TestLatestRounds_LeavesOutTheOldest(t *testing.T) {
	half := strings.Repeat("x", memory.MaxWindowBytes/2+1) // two of them do not fit
	round := func(after int64) conversation.Rounds {
		return conversation.Rounds{After: after, Messages: []conversation.Message{{Role: conversation.RoleTool, Text: half}}}
	}
	kept := latestRounds(map[string][]conversation.Rounds{"a": {round(1), round(4)}, "b": {round(2)}})
	require.Len(t, kept, 1)
	require.Len(t, kept["a"], 1)
	require.EqualValues(t, 4, kept["a"][0].After)
}
