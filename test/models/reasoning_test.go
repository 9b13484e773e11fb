package models

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/openaitest"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// A mesh shows what a model thinks before a tool call, keeps it, and sends it back in the next round and in the next
// turn. The server refuses requests without it, as DeepSeek does: https://github.com/continuedev/continue/issues/10193.
//
// Req: CO-11, CO-48, LP-45
func TestMesh_SendsTheThoughtsBeforeAToolCallBack(t *testing.T) {
	server := startServer(t, openaitest.Wire{RequiresReasoning: true}, llmtest.RepliesInOrder(
		llmtest.Reply{Thoughts: []string{"I must ", "look it up."}, Calls: []llmtest.Call{toolCall("call_7", "search_documents", `{"query":"write"}`)}},
		llmtest.Reply{Texts: []string{"An agent writes its own state."}},
		llmtest.Reply{Texts: []string{"You are welcome."}},
	))
	docs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(docs, "state.md"), []byte("# State\n\nAn agent may write its own state.\n"), 0o600))
	c := startMesh(t, agentFolder(t, "  model: openai/deepseek-v4-pro\n  tools:\n    - builtin: search_documents\n      with: {path: "+docs+"}\n"))
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	session := ""
	var thoughts []string
	for _, text := range []string{"What may an agent write?", "Thanks."} {
		for e, err := range c.Turn(ctx, &troupev1.OrchestrateRequest{
			Input: &troupev1.OrchestrateRequest_Text{Text: text}, Target: "helper", SessionId: session,
		}) {
			require.NoError(t, err)
			session = e.GetSessionId()
			if thought := e.GetThinking(); thought != nil {
				require.Equal(t, troupev1.Topic_TOPIC_REASONING, thought.GetTopic())
				thoughts = append(thoughts, thought.GetText())
			}
			require.Nil(t, e.GetTurnResult().GetFailure())
		}
	}
	require.Equal(t, []string{"I must look it up."}, thoughts)
	asked := server.Requests()
	require.Len(t, asked, 3)
	require.Empty(t, asked[0].Thoughts)
	require.Equal(t, map[int]string{1: "I must look it up."}, asked[1].Thoughts, "in the next round")
	require.Equal(t, map[int]string{1: "I must look it up."}, asked[2].Thoughts, "in the next turn")
}
