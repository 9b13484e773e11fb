package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// A model sees the tool calls of the agent's earlier turns, where they happened. A replay shows the model the same.
//
// Req: LP-45
func TestExecuteStep_RemembersTheRoundsOfEarlierTurns(t *testing.T) {
	s, sent := newWorkerEnv(t), new(mailTool)
	first := s.start(t, mailAgent(t, sent, sendCall("bob"), scripted.Say("Done.")))
	readStep(t, first.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	require.NoError(t, first.stop())

	second := mailAgent(t, sent, scripted.Say("I wrote to bob."))
	r := s.start(t, second)
	req := s.beginTurnWithID(t, "a", "s1", "t2")
	require.True(t, req.GetHasRounds())
	req.Recorded = true
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.NoError(t, r.stop())

	var roles []conversation.Role
	messages := second.Model.(*scripted.Model).Requests()[0].Messages
	for _, m := range messages {
		roles = append(roles, m.Role)
	}
	require.Equal(t, []conversation.Role{
		conversation.RoleUser, conversation.RoleAssistant, conversation.RoleTool, conversation.RoleAssistant, conversation.RoleUser,
	}, roles[:5])
	require.Equal(t, "send", messages[1].ToolCalls[0].Name)
	require.Equal(t, "sent to bob", messages[2].Text)
	require.Equal(t, "Done.", messages[3].Text)

	same := s.replayStep(t, mailAgent(t, sent), &troupev1.ReplayStepRequest{Step: req, Result: result})
	require.Nil(t, same.GetDifference(), "%v", same)
	require.Empty(t, same.GetChangedPrompts())
}
