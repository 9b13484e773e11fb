package modelcall_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop/modelcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
)

func TestCallIDs_AssignsUniqueIDs(t *testing.T) {
	var ids modelcall.CallIDs
	earlier := []conversation.Message{{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{{ID: "a"}}}}
	calls := []conversation.ToolCall{{ID: "a"}, {}, {ID: "b"}, {ID: "b"}}
	assigned := ids.Assign(calls, earlier)
	require.Equal(t, []conversation.ToolCall{{ID: "call_1"}, {ID: "call_2"}, {ID: "b"}, {ID: "call_3"}}, assigned)
	require.Equal(t, "a", calls[0].ID, "the calls of the caller do not change")

	ids.MarkUsed(assigned)
	require.Equal(t, []conversation.ToolCall{{ID: "call_4"}}, ids.Assign([]conversation.ToolCall{{ID: "b"}}, nil), "also when the messages are gone")
	require.Nil(t, ids.Assign(nil, nil))
}
