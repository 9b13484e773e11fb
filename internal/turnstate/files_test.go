package turnstate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/conversation"
)

// shot returns a tool result with a file of the size.
func shot(n, size int) conversation.Message {
	return conversation.Message{Role: conversation.RoleTool, Text: fmt.Sprint(n), Attachments: []conversation.Attachment{
		{Name: fmt.Sprint(n), Version: 1, Size: int64(size), Data: make([]byte, size)},
	}}
}

// shown returns the texts of the messages whose files have their content.
func shown(messages []conversation.Message) (texts []string) {
	for _, m := range messages {
		if len(m.Attachments) > 0 && m.Attachments[0].Data != nil {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// When the files of results are too large together, the oldest lose their content, down to half of the limit. So the
// beginning of the requests changes seldom. Files of the user stay, and requests of earlier calls are unchanged.
//
// Req: CO-74
func TestConversation_LimitsTheFilesOfResults(t *testing.T) {
	const size = conversation.MaxShownBytes / 10
	user := conversation.User("look")
	user.Attachments = []conversation.Attachment{{Name: "map", Version: 1, Size: size, Data: make([]byte, size)}}
	c := turnstate.NewConversation([]conversation.Message{user})
	for n := range 10 {
		c.Append(shot(n, size))
	}
	before := c.Messages()
	require.Equal(t, []string{"look", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, shown(before))
	c.Append(shot(10, size))
	require.Equal(t, []string{"look", "6", "7", "8", "9", "10"}, shown(c.Messages()))
	require.Len(t, shown(before), 11)
	require.Equal(t, "0", c.Messages()[1].Attachments[0].Name, "the model still reads the name")
}

// Req: CO-74
func TestConversation_FilesToLoad(t *testing.T) {
	const size = conversation.MaxShownBytes / 3
	user := conversation.User("look")
	user.Attachments = []conversation.Attachment{{Name: "map", Version: 1, Size: 1}}
	given := []conversation.Message{user}
	for n := range 4 {
		given = append(given, shot(n, size).WithoutData())
	}
	c := turnstate.NewConversation(given)
	files := c.FilesToLoad()
	require.Len(t, files, 3, "the latest that are not too large together")
	for i, f := range files {
		require.Equal(t, fmt.Sprint(3-i), f.Name)
		f.Data = []byte("x")
	}
	require.Equal(t, []string{"1", "2", "3"}, shown(c.Messages()))
	require.Empty(t, shown(given), "what was given is unchanged")
}
