package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Groq and Cerebras send reasoning, but reject requests that contain it: https://github.com/karthink/gptel/issues/774
// and https://github.com/NousResearch/hermes-agent/issues/45655.
func TestModel_SendsNoReasoningToServersThatRejectIt(t *testing.T) {
	for baseURL, want := range map[string]string{
		"https://api.groq.com/openai/v1": "", "https://api.cerebras.ai/v1": "", "http://localhost:11434/v1": "I must look.",
	} {
		m, err := server{prefix: "local"}.newModel("local/gpt-oss", Config{BaseURL: baseURL})
		require.NoError(t, err)
		sent := m.newRequest(llm.Request{Messages: []conversation.Message{{
			Role: conversation.RoleAssistant,
			ToolCalls: []conversation.ToolCall{{
				ID: "a", Name: "look", Arguments: "{}", Extra: extra{Server: "local", Form: formReasoning, Text: "I must look."}.encode(),
			}},
		}}})
		require.Equal(t, want, sent.Messages[0].Reasoning, baseURL)
	}
}
