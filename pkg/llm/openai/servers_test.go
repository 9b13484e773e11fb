package openai_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// eventStream returns a stream of server-sent events with the given line end.
func eventStream(lineEnd string, events ...string) string {
	var all strings.Builder
	for _, e := range append(events, "[DONE]") {
		all.WriteString("data: " + e + lineEnd + lineEnd)
	}
	return all.String()
}

// deltaEvent returns an event with one delta.
func deltaEvent(fields string) string { return `{"choices":[{"index":0,"delta":{` + fields + `}}]}` }

// finishEvent returns the event that ends an answer.
func finishEvent(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

// askServer sends a request to a server that responds with the given content type and body, and returns the
// answer.
func askServer(t *testing.T, contentType, body string) llmtest.Answer {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return ask(t, openModel(t, "test/large", s.URL))
}

// The adapter reads the documented formats of other servers, and those that users have reported.
func TestModel_ReadsTheFormatsOfOtherServers(t *testing.T) {
	pay := func(id string) []conversation.ToolCall {
		return []conversation.ToolCall{{ID: id, Name: "pay", Arguments: `{"amount":100}`}}
	}
	for name, test := range map[string]struct {
		events []string
		want   llmtest.Answer
	}{
		"reasoning_content, as DeepSeek sends it": {
			[]string{
				deltaEvent(`"role":"assistant","content":null,"reasoning_content":"The user "`),
				deltaEvent(`"content":null,"reasoning_content":"greets."`), deltaEvent(`"content":"Hi","reasoning_content":null`), finishEvent("stop"),
			},
			llmtest.Answer{Thought: "The user greets.", Texts: []string{"Hi"}, Finish: llm.FinishStop},
		},
		"reasoning, as OpenRouter and Ollama send it": {
			[]string{deltaEvent(`"content":"","reasoning":"Hm."`), deltaEvent(`"content":"Hi"`), finishEvent("stop")},
			llmtest.Answer{Thought: "Hm.", Texts: []string{"Hi"}, Finish: llm.FinishStop},
		},
		"the same reasoning under both names counts once": {
			[]string{deltaEvent(`"reasoning":"Hm.","reasoning_content":"Hm."`), deltaEvent(`"content":"Hi"`), finishEvent("stop")},
			llmtest.Answer{Thought: "Hm.", Texts: []string{"Hi"}, Finish: llm.FinishStop},
		},
		"a content list, as Mistral's reasoning models send it": {
			[]string{
				deltaEvent(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"Let me "},{"type":"text","text":"see."}]}]`),
				deltaEvent(`"content":[{"type":"text","text":"Hi"},{"type":"reference","reference_ids":[1]}]`), deltaEvent(`"content":" there"`), finishEvent("stop"),
			},
			llmtest.Answer{Thought: "Let me see.", Texts: []string{"Hi", " there"}, Finish: llm.FinishStop},
		},
		"thoughts in the text": {
			[]string{
				deltaEvent(`"content":"\n<th"`), deltaEvent(`"content":"ink>I "`), deltaEvent(`"content":"see</thi"`), deltaEvent(`"content":"nk>\n"`),
				deltaEvent(`"content":"\nHi, <think> is a tag"`), finishEvent("stop"),
			},
			llmtest.Answer{Thought: "I see", Texts: []string{"Hi, <think> is a tag"}, Finish: llm.FinishStop},
		},
		"a thought that never ends is not an answer": {
			[]string{deltaEvent(`"content":"<think>I see </"`), finishEvent("length")},
			llmtest.Answer{Thought: "I see </", Finish: llm.FinishLength},
		},
		"text that begins like a tag": {
			[]string{deltaEvent(`"content":"<thi"`), finishEvent("stop")},
			llmtest.Answer{Texts: []string{"<thi"}, Finish: llm.FinishStop},
		},
		"arguments as an object": {
			[]string{
				deltaEvent(`"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"pay","arguments":{"amount":100}}}]`),
				finishEvent("tool_calls"),
			},
			llmtest.Answer{Calls: pay("a"), Finish: llm.FinishCalls},
		},
		"the function call of before there were tool calls": {
			[]string{
				deltaEvent(`"function_call":{"name":"pay","arguments":""}`), deltaEvent(`"function_call":{"arguments":"{\"amount\""}`),
				deltaEvent(`"function_call":{"arguments":":100}"}`), finishEvent("function_call"),
			},
			llmtest.Answer{Calls: pay(""), Finish: llm.FinishCalls},
		},
		"a character in two chunks": {
			[]string{
				deltaEvent(`"content":"A \ud83c"`), deltaEvent(`"content":"\udfad \\ud83c"`),
				deltaEvent(`"tool_calls":[{"index":0,"id":"a","function":{"name":"say","arguments":"{\"mask\":\"\ud83c"}}]`), deltaEvent(`"tool_calls":[{"index":0,"function":{"arguments":"\udfad\"}"}}]`), finishEvent("tool_calls"),
			},
			llmtest.Answer{
				Texts: []string{"A ", `🎭 \ud83c`}, Calls: []conversation.ToolCall{{ID: "a", Name: "say", Arguments: `{"mask":"🎭"}`}},
				Finish: llm.FinishCalls,
			},
		},
	} {
		for _, lineEnd := range []string{"\n", "\r\n", "\r"} {
			got := askServer(t, "text/event-stream", eventStream(lineEnd, test.events...))
			require.NoError(t, got.Err, name)
			require.Empty(t, cmp.Diff(test.want, got, cmpopts.EquateEmpty()), "%s, with line ends %q", name, lineEnd)
		}
	}
}

// The adapter reads an answer that is one JSON object. Some servers send one although the request asks for a
// stream.
func TestModel_ReadsAnAnswerThatIsNotStreamed(t *testing.T) {
	got := askServer(t, "application/json; charset=utf-8", `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",`+
		`"content":"Hi","reasoning_content":"Hm.","tool_calls":[{"id":"a","type":"function","function":{"name":"pay","arguments":"{\"amount\":100}"}}]},`+
		`"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_cache_hit_tokens":4}}`)
	require.NoError(t, got.Err)
	require.Equal(t, "Hm.", got.Thought)
	require.Equal(t, "Hi", got.Text())
	require.Equal(t, []conversation.ToolCall{{ID: "a", Name: "pay", Arguments: `{"amount":100}`}}, got.Calls)
	require.Equal(t, llm.FinishCalls, got.Finish)
	require.EqualValues(t, 9, got.Usage.InputTokens)
	require.EqualValues(t, 4, got.Usage.CachedTokens)

	for body, want := range map[string]llm.Kind{
		`{"error":{"message":"too much at once","code":429}}`: llm.RateLimit,
		`{"choices":[]}`:   llm.Connection,
		`{"choices":[{"me`: llm.Malformed,
	} {
		var refused *llm.Error
		require.ErrorAs(t, askServer(t, "application/json", body).Err, &refused, body)
		require.Equal(t, want, refused.Kind, body)
	}
}

// An answer that the server stopped is an error, for all finish reasons that servers use for it.
func TestModel_FailsWhenTheServerStoppedTheAnswer(t *testing.T) {
	for reason, want := range map[string]llm.Kind{
		"content_filter": llm.ContentFiltered, "sensitive": llm.ContentFiltered,
		"error": llm.Unavailable, "abort": llm.Unavailable, "insufficient_system_resource": llm.Unavailable,
	} {
		got := askServer(t, "text/event-stream", eventStream("\n", deltaEvent(`"content":"Hi"`), finishEvent(reason)))
		var refused *llm.Error
		require.ErrorAs(t, got.Err, &refused, reason)
		require.Equal(t, want, refused.Kind, reason)
		require.ErrorContains(t, got.Err, reason)
		require.Equal(t, "Hi", got.Text(), reason)
	}
}
