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

// The adapter reads the documented formats of other servers, and those that users have reported:
//
//   - reasoning_content: https://api-docs.deepseek.com/guides/thinking_mode
//   - reasoning: https://openrouter.ai/docs/use-cases/reasoning-tokens, https://docs.ollama.com/api/openai-compatibility
//   - both at once: https://github.com/braintrustdata/braintrust-sdk-javascript/issues/1883
//   - content lists: https://github.com/agentjido/req_llm/issues/742
//   - <think> over several chunks: https://github.com/LibreChat-AI/agents/pull/40
//   - arguments as an object: https://github.com/ggml-org/llama.cpp/issues/20198
//   - function_call: https://github.com/can1357/oh-my-pi/pull/1692
//   - split characters: https://github.com/openclaw/openclaw/pull/115536
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
				deltaEvent(`"tool_calls":[{"index":0,"id":"a","function":{"name":"say","arguments":"{\"mask\":\"\ud83c"}}]`),
				deltaEvent(`"tool_calls":[{"index":0,"function":{"arguments":"\udfad\"}"}}]`), finishEvent("tool_calls"),
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
			for i := range got.Calls {
				got.Calls[i].Extra = "" // see TestModel_SendsReasoningBack
			}
			require.Empty(t, cmp.Diff(test.want, got, cmpopts.EquateEmpty()), "%s, with line ends %q", name, lineEnd)
		}
	}
}

// The adapter reads an answer that is one JSON object. Some servers send one although the request asks for a
// stream, and some of them say that it is a stream: https://github.com/decolua/9router/issues/3492.
func TestModel_ReadsAnAnswerThatIsNotStreamed(t *testing.T) {
	got := askServer(t, "application/json; charset=utf-8", `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",`+
		`"content":"Hi","reasoning_content":"Hm.","tool_calls":[{"id":"a","type":"function","function":{"name":"pay","arguments":"{\"amount\":100}"}}]},`+
		`"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_cache_hit_tokens":4}}`)
	require.NoError(t, got.Err)
	require.Equal(t, "Hm.", got.Thought)
	require.Equal(t, "Hi", got.Text())
	require.Len(t, got.Calls, 1)
	require.Equal(t, `{"amount":100}`, got.Calls[0].Arguments)
	require.Equal(t, llm.FinishCalls, got.Finish)
	require.EqualValues(t, 9, got.Usage.InputTokens)
	require.EqualValues(t, 4, got.Usage.CachedTokens)

	const whole = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"OK"},"finish_reason":"stop"}]}`
	for _, body := range []string{"\n " + whole + "\n\ndata: [DONE]\n\n", "data: " + whole + "\n\ndata: [DONE]\n\n"} {
		got := askServer(t, "text/event-stream", body)
		require.NoError(t, got.Err, body)
		require.Equal(t, "OK", got.Text(), body)
		require.Equal(t, llm.FinishStop, got.Finish, body)
	}

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

// An answer that the server stopped is an error, for all finish reasons that servers use for it. Their references are
// beside failureReasons.
func TestModel_FailsWhenTheServerStoppedTheAnswer(t *testing.T) {
	for reason, want := range map[string]llm.Kind{
		"content_filter": llm.ContentFiltered, "sensitive": llm.ContentFiltered,
		"error": llm.Unavailable, "abort": llm.Unavailable, "insufficient_system_resource": llm.Unavailable, "network_error": llm.Unavailable,
		// A malformed call of a model of Google, in its OpenAI format and behind OpenRouter.
		"function_call_filter: MALFORMED_FUNCTION_CALL":         llm.Unavailable,
		`stop","native_finish_reason":"MALFORMED_FUNCTION_CALL`: llm.Unavailable,
		`error","native_finish_reason":"UNEXPECTED_TOOL_CALL`:   llm.Unavailable,
	} {
		got := askServer(t, "text/event-stream", eventStream("\n", deltaEvent(`"content":"Hi"`), finishEvent(reason)))
		var refused *llm.Error
		require.ErrorAs(t, got.Err, &refused, reason)
		require.Equal(t, want, refused.Kind, reason)
		require.ErrorContains(t, got.Err, strings.Split(reason, `"`)[0])
		require.Equal(t, "Hi", got.Text(), reason)
	}
}

// The servers have more reasons for a complete or cut answer than OpenAI. Their references are beside finishReasons.
func TestModel_KnowsTheFinishReasonsOfOtherServers(t *testing.T) {
	for reason, want := range map[string]llm.Finish{
		"stop": llm.FinishStop, "STOP": llm.FinishStop, "eos": llm.FinishStop, "eos_token": llm.FinishStop, "stop_sequence": llm.FinishStop,
		"length": llm.FinishLength, "model_length": llm.FinishLength, "model_context_window_exceeded": llm.FinishLength,
		"brand_new": llm.FinishOther,
	} {
		got := askServer(t, "text/event-stream", eventStream("\n", deltaEvent(`"content":"Hi"`), finishEvent(reason)))
		require.NoError(t, got.Err, reason)
		require.Equal(t, want, got.Finish, reason)
	}
}

// An error within a stream fails the call. vLLM sends it without a field error, as reported in
// https://github.com/block/goose/pull/8031. OpenRouter sends it together with a choice:
// https://openrouter.ai/docs/api/reference/streaming#handling-errors-during-streaming.
func TestModel_FailsAtAnErrorWithinTheStream(t *testing.T) {
	for event, want := range map[string]llm.Kind{
		`{"object":"error","message":"too much at once","type":"InternalServerError","code":500}`: llm.Unavailable,
		`{"object":"error","message":"too much at once","type":"BadRequestError","code":400}`:     llm.BadRequest,
		`{"id":"gen-1","object":"chat.completion.chunk","error":{"code":"server_error","message":"too much at once"},` +
			`"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`: llm.Unavailable,
	} {
		got := askServer(t, "text/event-stream", eventStream("\n", deltaEvent(`"content":"Hi"`), event))
		require.Equal(t, want, llm.KindOf(got.Err), event)
		require.ErrorContains(t, got.Err, "too much at once", event)
		require.Equal(t, "Hi", got.Text(), event)
	}
}
