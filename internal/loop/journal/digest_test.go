package journal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

func TestDifferentParts(t *testing.T) {
	req := llm.Request{System: "Be kind.", Messages: []conversation.Message{conversation.User("hello")}, Tools: []llm.ToolSpec{{Name: "send"}}}
	was := RequestDigest(req)
	require.LessOrEqual(t, len(was), 64, "which an entry of a journal may have")
	stored := req
	stored.Messages = []conversation.Message{{Role: conversation.RoleUser, Text: "hello", Sequence: 7, Turn: 2, Time: time.Unix(1, 0)}}
	require.Empty(t, DifferentParts(was, RequestDigest(stored)), "when and where it was stored does not count")
	for part, change := range map[string]func(*llm.Request){
		"instructions": func(r *llm.Request) { r.System = "Be brief." },
		"messages":     func(r *llm.Request) { r.Messages = nil },
		"tools":        func(r *llm.Request) { r.Choices = []string{"research"} },
	} {
		changed := req
		change(&changed)
		require.Equal(t, []string{part}, DifferentParts(was, RequestDigest(changed)))
	}
	require.Empty(t, DifferentParts("", was), "a request that was not recorded differs in nothing")
}
