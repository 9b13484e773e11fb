package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// callEvent is an event with a complete call.
const callEvent = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]}}]}`

// askAgain sends a stream as the answer to a request, and then a second request with the calls of the answer and an
// earlier call without reasoning. It returns the messages of the second request.
func askAgain(t *testing.T, name string, events ...string) []map[string]any {
	t.Helper()
	s := llmreplay.New(t, http.StatusOK, eventStream("\n", append(events, callEvent, finishEvent("tool_calls"))...))
	m := openModel(t, name, s.URL)
	said := ask(t, m)
	require.NoError(t, said.Err)
	require.NotEmpty(t, said.Calls)
	require.LessOrEqual(t, len(said.Calls[0].Extra), 64<<10)
	require.NoError(t, llmtest.Ask(t.Context(), m, llm.Request{Messages: []conversation.Message{
		conversation.User("hello"),
		{Role: conversation.RoleAssistant, Text: "Let me see.", ToolCalls: []conversation.ToolCall{{ID: "before", Name: "look", Arguments: "{}"}}},
		{Role: conversation.RoleTool, ToolCallID: "before", Text: "fog"},
		{Role: conversation.RoleAssistant, Text: "I look.", ToolCalls: said.Calls},
		{Role: conversation.RoleTool, ToolCallID: said.Calls[0].ID, Text: "fog"},
	}}).Err)
	var sent struct{ Messages []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(s.Last().Body), &sent))
	return sent.Messages
}

// DeepSeek rejects a message with calls that has no reasoning_content, also if the model has thought nothing
// (https://github.com/deepseek-ai/deepseek-harness/discussions/739), and also if another model wrote the message
// (https://github.com/continuedev/continue/issues/11285).
//
// Req: CO-11
func TestModel_SendsReasoningContentWithEveryMessage(t *testing.T) {
	for thought, events := range map[string][]string{
		"I must look.": {deltaEvent(`"content":null,"reasoning_content":"I must "`), deltaEvent(`"reasoning_content":"look."`)},
		"":             {deltaEvent(`"role":"assistant","content":null,"reasoning_content":""`)},
	} {
		sent := askAgain(t, "deepseek/deepseek-v4-pro", events...)
		require.Equal(t, "", sent[1]["reasoning_content"])
		require.Equal(t, thought, sent[3]["reasoning_content"])
		require.Equal(t, "I look.", sent[3]["content"])
	}
	for _, m := range askAgain(t, "local/llama", deltaEvent(`"content":null,"reasoning_content":null`)) {
		require.NotContains(t, m, "reasoning_content", "of a server that has never sent it")
	}
}

// OpenRouter streams each reasoning detail in pieces, and expects the details back as they would be in a whole answer.
// The stream is modelled on a recorded one:
// https://github.com/charmbracelet/fantasy/tree/main/providertests/testdata/TestOpenRouterThinking.
func TestModel_JoinsThePiecesOfReasoningDetails(t *testing.T) {
	piece := func(fields string) string {
		return deltaEvent(`"content":"","reasoning":null,"reasoning_details":[{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,` + fields + `}]`)
	}
	sent := askAgain(t, "openrouter/anthropic/claude",
		deltaEvent(`"content":"","reasoning":null,"reasoning_details":[]`), piece(`"text":"","signature":""`), piece(`"text":"I must "`), piece(`"text":"look."`),
		piece(`"text":"","signature":"c2ln"`),
		deltaEvent(`"reasoning_details":[{"type":"reasoning.encrypted","data":"ZW5j","id":"rs_1","format":"openai-responses-v1","index":0}]`),
		deltaEvent(`"reasoning_details":[{"type":"reasoning.encrypted","data":"ZW5k","id":"rs_2","format":"openai-responses-v1","index":0}]`))
	require.Equal(t, []any{
		map[string]any{"type": "reasoning.text", "text": "I must look.", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0.0},
		map[string]any{"type": "reasoning.encrypted", "data": "ZW5j", "id": "rs_1", "format": "openai-responses-v1", "index": 0.0},
		map[string]any{"type": "reasoning.encrypted", "data": "ZW5k", "id": "rs_2", "format": "openai-responses-v1", "index": 0.0},
	}, sent[3]["reasoning_details"])
	require.NotContains(t, sent[3], "reasoning")
	require.NotContains(t, sent[1], "reasoning_details")
}

// The text of a detail is shown if the server sends it nowhere else.
func TestModel_ShowsReasoningDetails(t *testing.T) {
	got := askServer(t, "text/event-stream", eventStream("\n",
		deltaEvent(`"reasoning_details":[{"type":"reasoning.summary","summary":"I see.","index":0}]`), deltaEvent(`"content":"Hi"`), finishEvent("stop")))
	require.NoError(t, got.Err)
	require.Equal(t, "I see.", got.Thought)
}

// A long thought is cut to the limit of an Extra, because a server may reject the message without it.
func TestModel_CutsLongReasoning(t *testing.T) {
	long := strings.Repeat(`<ä \"\n`, 20_000)
	text, err := json.Marshal(long)
	require.NoError(t, err)
	sent := askAgain(t, "deepseek/deepseek-v4-pro", deltaEvent(`"reasoning_content":`+string(text)))
	kept, _ := sent[3]["reasoning_content"].(string)
	require.True(t, strings.HasPrefix(long, kept))
	require.Greater(t, len(kept), 30<<10)
}
