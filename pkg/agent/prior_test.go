package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// The texts of parallel branches are not in the conversation. The step after the branches gets them as additional
// messages.
func TestAgent_ReadsTheTextsOfBranches(t *testing.T) {
	model := scripted.New(scripted.Reply{Deltas: []string{"So."}})
	step := execution.Step{
		Agent:   "research",
		History: []conversation.Message{conversation.User("What?"), conversation.Assistant("first", "in the conversation")},
		Prior: []execution.Result{
			{Step: 1, Agent: "first", Text: "in the conversation"},
			{Step: 2, Agent: "left", Text: "beside it, left"},
			{Step: 3, Agent: "right", Text: "beside it, right"},
		},
	}
	_, _, err := execute(t.Context(), build(t, agent.Config{Model: model}), step, discardEvents)
	require.NoError(t, err)
	messages := model.Requests()[0].Messages
	told := messages[len(messages)-1].Text
	require.Contains(t, told, "What left said:\n\nbeside it, left\n\nWhat right said:\n\nbeside it, right")
	require.NotContains(t, told, "What first said")
}
