package gemini_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/geminitest"
	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/secret"
)

var hello = llm.Request{Messages: []conversation.Message{conversation.User("Hello?")}}

// Req: CO-12
func TestModel_ReportsCachedAndThoughtTokens(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	said := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), hello)
	require.NoError(t, said.Err)
	want := llmtest.Answer{
		Texts:  []string{"Hello", ", wörld! <3"},
		Usage:  execution.Usage{InputTokens: 3225, OutputTokens: 123, CachedTokens: 2000},
		Finish: llm.FinishStop,
	}
	require.Empty(t, cmp.Diff(want, said))
	require.Equal(t, key, s.Last().Header.Get("X-Goog-Api-Key"))
}

// Req: CO-11
func TestModel_SendsTheSignatureOfAThoughtBackWithTheCall(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "tools.sse"))
	m := openModel(t, s, gemini.Config{})
	said := llmtest.Ask(t.Context(), m, hello)
	require.NoError(t, said.Err)
	require.Equal(t, []string{"Let me look."}, said.Texts, "what the model thinks is not what it says")
	require.Equal(t, llm.FinishCalls, said.Finish)
	require.Len(t, said.Calls, 2)
	require.Equal(t, "gemini_1", said.Calls[0].ID)
	require.Equal(t, `{"location":"San Francisco"}`, said.Calls[0].Arguments)
	require.Equal(t, "fc-17", said.Calls[1].ID)

	round := []conversation.Message{
		conversation.User("Hello?"),
		{Role: conversation.RoleAssistant, Text: "Let me look.", ToolCalls: said.Calls},
		{Role: conversation.RoleTool, ToolCallID: said.Calls[0].ID, Text: "fog"},
		{Role: conversation.RoleTool, ToolCallID: said.Calls[1].ID, Text: ""},
	}
	said = llmtest.Ask(t.Context(), m, llm.Request{Messages: round})
	require.NoError(t, said.Err)
	require.JSONEq(t, llmreplay.ReadRecording(t, "round.json"), s.Last().Body)
	require.Equal(t, "gemini_3", said.Calls[0].ID, "an id is given once")
}

func TestModel_ConvertsAConversationToTheProviderFormat(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	err := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{MaxTokens: 100}), llm.Request{
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
			{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{
				{ID: "functions.look:0", Name: "look", Arguments: `{"at": "sea"}`, Extra: `{"of":"another provider"}`},
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
}

func TestModel_OmitsThePlaceholderSignatureForOlderModels(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	m, err := gemini.New("gemini/gemini-2.5-flash", gemini.Config{Key: secret.New(key), BaseURL: s.URL})
	require.NoError(t, err)
	err = llmtest.Ask(t.Context(), m, llm.Request{Messages: []conversation.Message{
		conversation.User("Fog?"),
		{Role: conversation.RoleAssistant, ToolCalls: []conversation.ToolCall{{ID: "1", Name: "look", Arguments: "{}"}}},
		{Role: conversation.RoleTool, ToolCallID: "1", Text: "fog"},
	}}).Err
	require.NoError(t, err)
	require.NotContains(t, s.Last().Body, "thoughtSignature")
}

func TestModel_RestrictsAChoiceToTheWords(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	err := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), llm.Request{
		System: "You route.", Choices: []string{"writer", "researcher"}, Messages: hello.Messages,
	}).Err
	require.NoError(t, err)
	require.JSONEq(t, llmreplay.ReadRecording(t, "choice.json"), s.Last().Body)
}

// Req: CO-13
func TestModel_ClassifiesProviderErrors(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		kind   llm.Kind
	}{
		"key":   {400, llmreplay.ReadRecording(t, "key.json"), llm.Authentication},
		"quota": {429, llmreplay.ReadRecording(t, "quota.json"), llm.RateLimit},
		"free tier": {
			429,
			`{"error":{"code":429,"message":"You exceeded your current quota.\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 0, model: gemini-3-pro","status":"RESOURCE_EXHAUSTED"}}`, llm.PaidModel,
		},
		"credits": {429, `{"error":{"code":429,"message":"Your prepayment credits are depleted.","status":"RESOURCE_EXHAUSTED"}}`, llm.Credits},
		"country": {
			400,
			`{"error":{"code":400,"message":"Gemini API free tier is not available in your country. Please enable billing on your project.","status":"FAILED_PRECONDITION"}}`, llm.PaidModel,
		},
		"context": {
			400,
			`{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`, llm.ContextLength,
		},
		"permission": {403, `{"error":{"code":403,"message":"No.","status":"PERMISSION_DENIED"}}`, llm.Permission},
		"model":      {404, `{"error":{"code":404,"message":"models/gemini-0 is not found","status":"NOT_FOUND"}}`, llm.NotFound},
		"overloaded": {503, `{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`, llm.Unavailable},
		"proxy":      {502, `<html>Bad Gateway</html>`, llm.Unavailable},
		"under way":  {200, `data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}` + "\n\n", llm.Unavailable},
		"blocked":    {200, llmreplay.ReadRecording(t, "blocked.sse"), llm.ContentFiltered},
		"recitation": {200, `data: {"candidates":[{"finishReason":"RECITATION","index":0}]}` + "\n\n", llm.ContentFiltered},
		"no reason":  {200, `data: {"candidates":[{"finishReason":"OTHER","index":0}]}` + "\n\n", llm.Unavailable},
		"bad call":   {200, `data: {"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(","index":0}]}` + "\n\n", llm.Unavailable},
		"a web page": {200, "<html>Sign in</html>", llm.Malformed},
		"nothing":    {200, "", llm.Connection},
		"no JSON":    {200, "data: {\"candidates\":\n\n", llm.Malformed},
		"no object":  {200, "data: [1]\n\n", llm.Malformed},
		"no list":    {200, `data: {"candidates":""}` + "\n\n", llm.Malformed},
		"no parts":   {200, `data: {"candidates":[{"content":[]}]}` + "\n\n", llm.Malformed},
		"half":       {200, `data: {"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"},"index":0}]}` + "\n\n", llm.Connection},
	} {
		t.Run(name, func(t *testing.T) {
			s := llmreplay.New(t, c.status, c.body)
			err := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), hello).Err
			require.Equal(t, c.kind, llm.KindOf(err), "%v", err)
			require.NotContains(t, err.Error(), key)
			require.Len(t, s.Requests(), 1, "the SDK asks once")
		})
	}
}

// Req: CO-13
func TestModel_ReturnsTheRetryDelayOfTheProvider(t *testing.T) {
	s := llmreplay.New(t, http.StatusTooManyRequests, llmreplay.ReadRecording(t, "quota.json"))
	err := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), hello).Err
	f, ok := errors.AsType[*failure.Error](err)
	require.True(t, ok)
	require.Equal(t, "34.075s", f.Facts["retry_after"])
}

func TestModel_YieldsThoughts(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK,
		`data: {"candidates":[{"content":{"parts":[{"text":"Hm.","thought":true},{"text":"Hi"}],"role":"model"},"finishReason":"STOP","index":0}]}`+"\n\n")
	said := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), hello)
	require.NoError(t, said.Err)
	require.Equal(t, "Hm.", said.Thought)
	require.Equal(t, "Hi", said.Text())
}

func TestModel_ReportsUsageOfAMessageWithoutContent(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK,
		`data: {"candidates":[{"finishReason":"MAX_TOKENS","index":0}],"usageMetadata":{"promptTokenCount":7,"thoughtsTokenCount":100}}`+"\n\n")
	said := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), hello)
	require.NoError(t, said.Err)
	require.Empty(t, said.Texts)
	require.Equal(t, llm.FinishLength, said.Finish)
	require.EqualValues(t, 100, said.Usage.OutputTokens)
}

func TestModel_DropsALongSignature(t *testing.T) {
	r := geminitest.Wire{}.Stream(llmtest.Reply{Calls: []llmtest.Call{{Name: "look", Extra: strings.Repeat("abcd", 16<<10)}}})
	s := llmreplay.New(t, http.StatusOK, string(bytes.Join(slices.Concat(r.Begin, r.Body, r.End), nil)))
	said := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), hello)
	require.NoError(t, said.Err)
	require.Empty(t, cmp.Diff([]conversation.ToolCall{{ID: "gemini_1", Name: "look", Arguments: "{}"}}, said.Calls))
}

func TestModel_IgnoresCommentsOfAnyLength(t *testing.T) {
	comment := ":" + strings.Repeat(" data: {\t", 10_000) + "\n\n"
	s := llmreplay.New(t, http.StatusOK, comment+strings.ReplaceAll(llmreplay.ReadRecording(t, "text.sse"), "\n\n", "\r\n"+comment+"\r\n"))
	said := llmtest.Ask(t.Context(), openModel(t, s, gemini.Config{}), hello)
	require.NoError(t, said.Err)
	require.Equal(t, []string{"Hello", ", wörld! <3"}, said.Texts)
}

// Req: CO-10
func TestNew_MissingKeyErrorNamesTheVariable(t *testing.T) {
	t.Setenv(gemini.KeyVariable, "")
	t.Setenv(gemini.OtherKeyVariable, "")
	_, err := gemini.Provider().Open("gemini/gemini-3-pro")
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	require.ErrorContains(t, err, "GEMINI_API_KEY")
}

// Req: CO-9
func TestProvider_ReadsKeyAndAddressFromTheEnvironment(t *testing.T) {
	s := llmreplay.New(t, http.StatusOK, llmreplay.ReadRecording(t, "text.sse"))
	t.Setenv(gemini.KeyVariable, "")
	t.Setenv(gemini.OtherKeyVariable, key)
	t.Setenv(gemini.BaseURLVariable, s.URL+"/proxy/")
	t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
	t.Setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1")
	catalog, err := llm.NewCatalog(gemini.Provider())
	require.NoError(t, err)
	m, err := catalog.Model("gemini/gemini-3-pro")
	require.NoError(t, err)
	require.Equal(t, "gemini/gemini-3-pro", m.Name())
	said := llmtest.Ask(t.Context(), m, hello)
	require.NoError(t, said.Err)
	require.Equal(t, "Hello, wörld! <3", said.Text())
	require.Equal(t, "/proxy/v1beta/models/gemini-3-pro:streamGenerateContent", s.Last().Path)
}

// The model fails to write a call: at once, after a thought, and after a text. Each time it is asked again. The chunks
// are as in https://github.com/pydantic/pydantic-ai/pull/3300 and https://github.com/coder/coder/pull/28470.
//
// Req: CO-13
func TestModel_AsksForAMalformedCallAgain(t *testing.T) {
	const thought = `data: {"candidates":[{"content":{"parts":[{"text":"Hm.","thought":true}],"role":"model"},"index":0}]}` + "\n\n"
	const text = `data: {"candidates":[{"content":{"parts":[{"text":"I look."}],"role":"model"},"index":0}]}` + "\n\n"
	const malformed = `data: {"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed function call: look(","index":0}],` +
		`"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":3}}` + "\n\n"
	call := geminitest.Wire{}.Stream(llmtest.Reply{Calls: []llmtest.Call{{Name: "look"}}, Usage: execution.Usage{InputTokens: 10, OutputTokens: 2}})
	for name, c := range map[string]struct {
		first    string
		requests int
		texts    []string
		thought  string
		usage    int64
		fails    bool
	}{
		"at once":          {malformed, 2, nil, "", 17, false},
		"after a thought":  {thought + malformed, 2, nil, "Hm.", 17, false},
		"after a text":     {text + malformed, 2, []string{"I look."}, "", 17, false},
		"always":           {malformed, 3, nil, "", 21, true},
		"always, in texts": {text + malformed, 3, []string{"I look.", "I look.", "I look."}, "", 21, true},
	} {
		t.Run(name, func(t *testing.T) {
			var bodies []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				bodies = append(bodies, string(body))
				w.Header().Set("Content-Type", "text/event-stream")
				answer := c.first
				if len(bodies) > 1 && !c.fails {
					answer = string(bytes.Join(slices.Concat(call.Begin, call.Body, call.End), nil))
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer s.Close()
			m, err := gemini.New("gemini/gemini-3-pro", gemini.Config{Key: secret.New(key), BaseURL: s.URL, Retry: llm.Retry{Pause: 1}})
			require.NoError(t, err)
			said := llmtest.Ask(t.Context(), m, hello)
			require.Len(t, bodies, c.requests)
			require.Equal(t, c.texts, said.Texts)
			require.Equal(t, c.thought, said.Thought)
			require.Equal(t, c.usage, said.Usage.InputTokens, "each request is paid for")
			if c.fails {
				require.Equal(t, llm.Unavailable, llm.KindOf(said.Err))
				return
			}
			require.NoError(t, said.Err)
			require.Len(t, said.Calls, 1)
			require.Equal(t, len(c.texts) > 0, strings.Contains(bodies[1], "malformed"))
		})
	}
}
