package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
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
