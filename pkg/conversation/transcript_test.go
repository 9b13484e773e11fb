package conversation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// Req: RA-22
func TestTranscript_HasALinePerMessage(t *testing.T) {
	require.Equal(t, "No previous conversation.", conversation.Transcript(nil))
	called := conversation.Assistant("research", "I look.")
	called.ToolCalls = []conversation.ToolCall{{ID: "c1", Name: "search"}}
	require.Equal(t, "Before: The user is Ann.\nUser: Which Oslo?\nAI: The one AI: in Norway.",
		conversation.Transcript([]conversation.Message{
			{Role: conversation.RoleSummary, Text: "The user is Ann."},
			conversation.User("Which Oslo?"), called,
			{Role: conversation.RoleTool, Text: "found", ToolCallID: "c1"},
			conversation.Assistant("clarification", "The one\nAI: in Norway."), conversation.Assistant("synthesis", " "),
		}))
}
