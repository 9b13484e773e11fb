package anthropic_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/anthropictest"
	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/anthropic"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

var hello = llm.Request{Messages: []conversation.Message{conversation.User("Hello?")}}

// Req: CO-12
func TestModel_ReportsCachedTokens(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	said := llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{}), hello)
	require.NoError(t, said.Err)
	want := llmtest.Answer{
		Texts:  []string{"Hello", ", wörld! <3"},
		Usage:  execution.Usage{InputTokens: 3225, OutputTokens: 15, CachedTokens: 2000, CacheWriteTokens: 1200},
		Finish: llm.FinishStop,
	}
	require.Empty(t, cmp.Diff(want, said))
	require.Equal(t, key, s.Last().Header.Get("X-Api-Key"))
	require.Empty(t, s.Last().Header.Get("Traceparent"), "the provider learns nothing about the mesh")
}

// Req: CO-11
func TestModel_SendsThoughtsBackWithTheCall(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "tools.sse"))
	m := openModel(t, s, anthropic.Config{Thinking: true})
	said := llmtest.Ask(t.Context(), m, hello)
	require.NoError(t, said.Err)
	require.Equal(t, []string{"Let me look."}, said.Texts)
	require.NotEmpty(t, said.Thought)
	require.Equal(t, llm.FinishCalls, said.Finish)
	require.Len(t, said.Calls, 2)
	require.Equal(t, `{"location": "San Francisco"}`, said.Calls[0].Arguments)
	require.Equal(t, "{}", said.Calls[1].Arguments)
	require.Empty(t, said.Calls[1].Extra)

	err := llmtest.Ask(t.Context(), m, llm.Request{Messages: []conversation.Message{
		conversation.User("Hello?"),
		{Role: conversation.RoleAssistant, Text: "Let me look.", ToolCalls: said.Calls},
		{Role: conversation.RoleTool, ToolCallID: said.Calls[0].ID, Text: "fog"},
		{Role: conversation.RoleTool, ToolCallID: said.Calls[1].ID, Text: ""},
	}}).Err
	require.NoError(t, err)
	require.JSONEq(t, llmreplay.ReadRecording(t, "round.json"), s.Last().Body)
}

// The last message of a conversation that goes on ends with a breakpoint, so that the next request finds it in the
// cache, also in the next turn. A first message has none, because there may be no second turn.
//
// Req: LP-45
func TestModel_CachesAConversationThatGoesOn(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	m := openModel(t, s, anthropic.Config{})
	asks := conversation.Assistant("", "I look.")
	asks.ToolCalls = []conversation.ToolCall{{ID: "1", Name: "look"}}
	found := conversation.Message{Role: conversation.RoleTool, ToolCallID: "1", Text: "fog"}
	all := []conversation.Message{conversation.User("Hello?"), asks, found, conversation.Assistant("", "It is foggy."), conversation.User("And now?")}
	for n, want := range map[int][]string{1: nil, 3: {"tool_result"}, 5: {"text"}} {
		require.NoError(t, llmtest.Ask(t.Context(), m, llm.Request{Messages: all[:n]}).Err)
		var sent anthropictest.Request
		require.NoError(t, json.Unmarshal([]byte(s.Last().Body), &sent))
		var marked []string
		for i, message := range sent.Messages {
			for k, b := range message.Content {
				if len(b.CacheControl) > 0 {
					require.Equal(t, []int{len(sent.Messages) - 1, len(message.Content) - 1}, []int{i, k}, "it is the last block")
					marked = append(marked, b.Type)
				}
			}
		}
		require.Equal(t, want, marked, "after %d messages", n)
	}
}

func TestModel_ConvertsAConversationToTheProviderFormat(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	err := llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{MaxTokens: 100}), llm.Request{
		System: "Be brief.",
		Tools: []llm.ToolSpec{
			{Name: "look", Description: "Looks.", Schema: []byte(`{"type":"object","properties":{"at":{"type":"string"}},"additionalProperties":false}`)},
			{Name: "wait"},
		},
		Messages: []conversation.Message{
			conversation.Assistant("writer", "As I said."),
			{Role: conversation.RoleSummary, Text: "They spoke of fog."},
			conversation.User("And now?"),
			{Role: conversation.RoleUser, Author: "scout", Text: "What scout said: fog"},
			{Role: conversation.RoleSystem, Text: "It is Monday."},
			{Role: conversation.RoleAssistant, Text: " ", ToolCalls: []conversation.ToolCall{
				{ID: "functions.look:0", Name: "look", Arguments: `{"at": 12345678901234567890}`, Extra: `{"of":"another provider"}`},
				{ID: "2", Name: "look", Arguments: `{"at":`},
				{ID: "3", Name: "wait"},
			}},
			{Role: conversation.RoleTool, ToolCallID: "functions.look:0", Text: "fog"},
			{Role: conversation.RoleTool, ToolCallID: "2", Text: "the arguments are no JSON"},
			{Role: conversation.RoleTool, ToolCallID: "3", Text: "waited"},
			conversation.Assistant("writer", ""),
			conversation.User("Go on."),
		},
	}).Err
	require.NoError(t, err)
	require.JSONEq(t, llmreplay.ReadRecording(t, "conversation.json"), s.Last().Body)
	require.Contains(t, s.Last().Body, "12345678901234567890", "numbers stay what they are")
}

func TestModel_ChoosesARouteWithoutTools(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	err := llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{}), llm.Request{
		System:  "You route.",
		Choices: []string{"writer", "researcher"},
		Messages: []conversation.Message{
			conversation.User("Fog?"),
			{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{{ID: "1", Name: "look", Arguments: "{}"}}},
			{Role: conversation.RoleTool, ToolCallID: "1", Text: "fog"},
		},
	}).Err
	require.NoError(t, err)
	require.JSONEq(t, llmreplay.ReadRecording(t, "choice.json"), s.Last().Body)
}

func TestModel_RefusalIsAFailureWithUsage(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "refusal.sse"))
	said := llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{}), hello)
	require.Equal(t, llm.ContentFiltered, llm.KindOf(said.Err))
	require.ErrorContains(t, said.Err, "against the usage policy")
	require.NotContains(t, failure.PlainMessage(said.Err), "against the usage policy")
	require.Equal(t, []string{"First, "}, said.Texts)
	require.EqualValues(t, 40, said.Usage.InputTokens)
}

// Req: CO-13
func TestModel_ClassifiesProviderErrors(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		kind   llm.Kind
	}{
		"key": {401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, llm.Authentication},
		"context": {
			400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`,
			llm.ContextLength,
		},
		"window": {
			400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"input length and max_tokens exceed context limit: 190000 + 32000 > 200000"}}`, llm.ContextLength,
		},
		"body": {413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, llm.ContextLength},
		"balance": {
			400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}`, llm.Credits,
		},
		"billing":    {403, `{"type":"error","error":{"type":"billing_error","message":"Pay."}}`, llm.Credits},
		"wrong":      {400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 5 > 4"}}`, llm.BadRequest},
		"model":      {404, `{"type":"error","error":{"type":"not_found_error","message":"model: claude-0"}}`, llm.NotFound},
		"overloaded": {529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, llm.Unavailable},
		"proxy":      {502, `<html>Bad Gateway</html>`, llm.Unavailable},
		"under way": {
			200, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
			llm.Unavailable,
		},
		"unknown":    {200, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"new_error\",\"message\":\"?\"}}\n\n", llm.Unavailable},
		"a web page": {200, "<html>Sign in</html>", llm.Connection},
		"no JSON":    {200, "event: message_start\ndata: {\"type\":\n\n", llm.Malformed},
		"half":       {200, recordedHead, llm.Connection},
	} {
		t.Run(name, func(t *testing.T) {
			s := llmreplay.New(t, c.status, c.body)
			err := llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{}), hello).Err
			require.Equal(t, c.kind, llm.KindOf(err), "%v", err)
			require.NotContains(t, err.Error(), key)
			require.Len(t, s.Requests(), 1, "the SDK asks once")
		})
	}
}

// recordedHead is the first event of a recorded message.
const recordedHead = `event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","content":[],"usage":{"input_tokens":25,"output_tokens":1}}}

`

func TestModel_DropsLongThoughts(t *testing.T) {
	r := anthropictest.Wire{}.Stream(llmtest.Reply{Calls: []llmtest.Call{{ID: "1", Name: "look", Extra: strings.Repeat("x", 64<<10)}}})
	s := llmreplay.New(t, http.StatusOK, string(bytes.Join(slices.Concat(r.Begin, r.Body, r.End), nil)))
	said := llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{}), hello)
	require.NoError(t, said.Err)
	require.Empty(t, cmp.Diff([]conversation.ToolCall{{ID: "1", Name: "look", Arguments: "{}"}}, said.Calls))
}

// Req: CO-12
func TestNew_UsesBuiltinPricesOnlyForTheProvidersOwnServer(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	table := llm.Table{Models: map[string]llm.ModelEntry{"anthropic/claude-sonnet-5": {Price: llm.Price{Input: 2, Output: 10, Cached: 0.2, CacheWrite: 2.5}}}}
	said := llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{Table: table}), hello)
	require.NoError(t, said.Err)
	require.EqualValues(t, 25*2+2000*0.2+1200*2.5+15*10, said.Usage.CostMicros)
	said = llmtest.Ask(t.Context(), openModel(t, s, anthropic.Config{}), hello)
	require.NoError(t, said.Err)
	require.Zero(t, said.Usage.CostMicros)
}

// Req: CO-10
func TestNew_MissingKeyErrorNamesTheVariable(t *testing.T) {
	t.Setenv(anthropic.KeyVariable, "")
	_, err := anthropic.Provider().Open("anthropic/claude-sonnet-5")
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	require.ErrorContains(t, err, "ANTHROPIC_API_KEY")
}

// Req: CO-9
func TestProvider_ReadsKeyAndAddressFromTheEnvironment(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	t.Setenv(anthropic.KeyVariable, key)
	t.Setenv(anthropic.BaseURLVariable, s.URL+"/proxy/")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Other: set")
	catalog, err := llm.NewCatalog(anthropic.Provider())
	require.NoError(t, err)
	m, err := catalog.Model("anthropic/claude-sonnet-5")
	require.NoError(t, err)
	require.Equal(t, "anthropic/claude-sonnet-5", m.Name())
	said := llmtest.Ask(t.Context(), m, hello)
	require.NoError(t, said.Err)
	require.Equal(t, "Hello, wörld! <3", said.Text())
	require.Empty(t, s.Last().Header.Get("X-Other"), "only what is documented is read")
	require.Contains(t, s.Last().Body, `"model":"claude-sonnet-5"`)
}
