package openai_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
	"github.com/troupe-dev/troupe/pkg/secret"
)

type jsonObject = map[string]any

var hello = llm.Request{Messages: []conversation.Message{conversation.User("hello")}}

func ask(t *testing.T, m llm.Model) llmtest.Answer {
	t.Helper()
	return llmtest.Ask(t.Context(), m, hello)
}

// serveAnswer starts a server that sends the same answer to all requests, and returns its URL.
func serveAnswer(t *testing.T, status int, answer string) string {
	t.Helper()
	return llmreplay.New(t, status, answer).URL
}

func openModel(t *testing.T, name, baseURL string) llm.Model {
	t.Helper()
	m, err := openai.New(name, openai.Config{BaseURL: baseURL, Retry: noRetries})
	require.NoError(t, err)
	return m
}

// The adapter reads the streams in testdata, which have the formats in the servers' public references.
func TestModel_ReadsTheStreamsOfAllServers(t *testing.T) {
	weather := func(id string) []conversation.ToolCall {
		return []conversation.ToolCall{{ID: id, Name: "get_weather", Arguments: `{"location":"Boston, MA"}`}}
	}
	for file, want := range map[string]llmtest.Answer{
		"openai_text.txt": {Texts: []string{"Hello", "!", " How can", " I help", "?"}, Finish: llm.FinishStop, Usage: execution.Usage{
			InputTokens:  19,
			OutputTokens: 10,
		}},
		"openai_calls.txt": {
			Calls:  append(weather("call_1"), conversation.ToolCall{ID: "call_2", Name: "now", Arguments: "{}"}),
			Finish: llm.FinishCalls, Usage: execution.Usage{InputTokens: 2082, OutputTokens: 37, CachedTokens: 1920},
		},
		"openai_refusal.txt": {
			Texts: []string{"I'm sorry,", " I can't help", " with that."}, Finish: llm.FinishRefusal,
			Usage: execution.Usage{InputTokens: 80, OutputTokens: 11},
		},
		"ollama_calls.txt":    {Calls: append(weather("call_a"), weather("call_b")...), Finish: llm.FinishCalls},
		"vllm_text.txt":       {Texts: []string{"Hi", " there"}, Finish: llm.FinishStop, Usage: execution.Usage{InputTokens: 9, OutputTokens: 3}},
		"openrouter_text.txt": {Texts: []string{"Hi"}, Finish: llm.FinishStop, Usage: execution.Usage{InputTokens: 14, OutputTokens: 2, CostMicros: 42}},
		"gemini_extra.txt": {Calls: []conversation.ToolCall{{
			ID: "function-call-1", Name: "look", Arguments: "{}",
			Extra: `openai:{"server":"test","extra_content":{"google":{"thought_signature":"c2ln"}}}`,
		}}, Finish: llm.FinishCalls, Usage: execution.Usage{InputTokens: 40, OutputTokens: 12}},
	} {
		require.Empty(t, cmp.Diff(want, ask(t, openModel(t, "test/large", serveAnswer(t, http.StatusOK, llmreplay.ReadRecording(t, file))))), file)
	}
}

func TestModel_ClassifiesTheErrorsOfAllServers(t *testing.T) {
	for body, want := range map[string]struct {
		status int
		kind   llm.Kind
		text   string
	}{
		`{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`: {
			429, llm.Credits,
			"exceeded your current quota",
		},
		`{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}`: {
			400,
			llm.ContextLength, "4096",
		},
		`{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`: {
			400,
			llm.ContextLength, "available context",
		},
		`{"error":{"code":"content_filter","message":"The response was filtered"}}`: {
			400,
			llm.ContentFiltered, "filtered",
		},
		`{"error":"model \"nothing\" not found, try pulling it first"}`: {
			404, llm.NotFound,
			"pulling",
		},
		`{"detail":"Insufficient credits"}`:                                              {402, llm.Credits, "Insufficient"},
		`{"detail":"This one is for paid accounts"}`:                                     {403, llm.PaidModel, "This one"},
		`{"detail":[{"loc":["body","x"],"msg":"extra fields are not permitted"}]}`:       {422, llm.BadRequest, "not permitted"},
		`{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}`:        {413, llm.ContextLength, "Rate limit"},
		`<html>bad gateway</html>`:                                                       {502, llm.Unavailable, "bad gateway"},
		"data: " + `{"error":{"code":429,"message":"Slow down"}}` + "\n\n":               {200, llm.RateLimit, "Slow down"},
		"data: " + `{"error":{"message":"Try later","type":"server_error"}}` + "\n\n":    {200, llm.Unavailable, "Try later"},
		"data: " + `{"error":{"message":"Bad","type":"invalid_request_error"}}` + "\n\n": {200, llm.BadRequest, "Bad"},
	} {
		err := ask(t, openModel(t, "test/large", serveAnswer(t, want.status, body))).Err
		require.Equal(t, want.kind, llm.KindOf(err), "%s: %v", body, err)
		require.ErrorContains(t, err, want.text)
		f, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok)
		require.NotContains(t, f.Message, want.text, "what the provider says is for the log")
	}
}

// Req: CO-13
func TestNew_RetriesFailedRequests(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, "%s%s", openaitest.ChoiceEvent(jsonObject{"content": "hi"}, nil), openaitest.ChoiceEvent(jsonObject{}, "stop"))
	}))
	t.Cleanup(s.Close)
	m, err := openai.New("local/llama", openai.Config{BaseURL: s.URL, Retry: llm.Retry{Pause: 1}})
	require.NoError(t, err)
	require.Equal(t, "local/llama", m.Name())
	require.Empty(t, cmp.Diff(llmtest.Answer{Texts: []string{"hi"}, Finish: llm.FinishStop}, ask(t, m)))
	require.EqualValues(t, 3, asked.Load())
}

// unsetProviderVariables unsets the environment variables that Providers read.
func unsetProviderVariables(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OPENAI", "GROQ", "OPENROUTER", "MISTRAL", "XAI", "OPENONION"} {
		t.Setenv(name+"_API_KEY", "")
		t.Setenv(name+"_BASE_URL", "")
	}
}

// Req: CO-10
func TestProviders_MissingKeyErrorNamesTheVariable(t *testing.T) {
	unsetProviderVariables(t)
	catalog, err := llm.NewCatalog(openai.Providers()...)
	require.NoError(t, err)
	for name, variable := range map[string]string{
		"openai/gpt-5": "OPENAI_API_KEY", "o3": "OPENAI_API_KEY", "gpt-4o": "OPENAI_API_KEY", "groq/llama-3": "GROQ_API_KEY", "openrouter/a/b": "OPENROUTER_API_KEY",
		"mistral/small": "MISTRAL_API_KEY", "grok/grok-4": "XAI_API_KEY", "co/gpt-5": "OPENONION_API_KEY",
	} {
		_, err := catalog.Model(name)
		require.True(t, failure.Is(err, failure.UserInvalidInput))
		require.ErrorContains(t, err, "set "+variable)
		require.ErrorContains(t, err, name)
	}
}

// Req: CO-10
func TestProviders_EachHasItsOwnKeyAndAddress(t *testing.T) {
	unsetProviderVariables(t)
	var header atomic.Pointer[http.Header]
	var path atomic.Pointer[string]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header.Store(&r.Header)
		path.Store(&r.URL.Path)
		_, _ = w.Write([]byte("data: [DONE]\n\n"))
	}))
	t.Cleanup(s.Close)
	t.Setenv("OPENAI_API_KEY", "sk-of-openai")
	t.Setenv("OPENAI_ORG_ID", "org-of-openai")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: of-openai")
	t.Setenv("GROQ_API_KEY", "of-groq")
	t.Setenv("GROQ_BASE_URL", s.URL+"/groq/v1")
	t.Setenv("OPENAI_BASE_URL", s.URL+"/local/v1")
	catalog, err := llm.NewCatalog(openai.Providers()...)
	require.NoError(t, err)

	m, err := catalog.Model("groq/llama")
	require.NoError(t, err)
	require.NoError(t, ask(t, m).Err)
	require.Equal(t, "/groq/v1/chat/completions", *path.Load())
	require.Equal(t, "Bearer of-groq", header.Load().Get("Authorization"))
	require.NotContains(t, fmt.Sprint(*header.Load()), "of-openai")

	t.Setenv("OPENAI_API_KEY", "") // a local server needs none
	m, err = catalog.Model("gpt-oss")
	require.NoError(t, err)
	require.Equal(t, "openai/gpt-oss", m.Name())
	require.NoError(t, ask(t, m).Err)
	require.Equal(t, "/local/v1/chat/completions", *path.Load())
	require.Empty(t, header.Load().Get("Authorization"))
}

func TestNew_UsesBuiltinPricesOnlyForTheProvidersOwnServer(t *testing.T) {
	url := serveAnswer(t, http.StatusOK, string(openaitest.EncodeEvent(jsonObject{
		"usage":   jsonObject{"prompt_tokens": 1000},
		"choices": []jsonObject{{"finish_reason": "stop"}},
	})))
	m := openModel(t, "openai/gpt-5", url)
	require.Zero(t, ask(t, m).Usage.CostMicros, "what this server asks is not known")
	require.EqualValues(t, llm.DefaultContextSize, llm.ContextSizeOf(m))

	m, err := openai.New("openai/gpt-5", openai.Config{BaseURL: url, Table: llm.BuiltinTable()})
	require.NoError(t, err)
	require.EqualValues(t, 1250, ask(t, m).Usage.CostMicros)
	require.EqualValues(t, 400_000, llm.ContextSizeOf(m))
}

func TestModel_ReusesItsConnection(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range (openaitest.Wire{}).Stream(llmtest.Reply{}).End {
			_, _ = w.Write(e)
			_ = http.NewResponseController(w).Flush()
		}
		end := time.NewTimer(time.Millisecond) // the response ends after the answer
		defer end.Stop()
		<-end.C
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	m := openModel(t, "test/large", s.URL)
	for range 20 {
		require.NoError(t, ask(t, m).Err)
	}
	require.LessOrEqual(t, connections.Load(), int32(5))
}

// Servers may interleave the pieces of several calls, which then differ only in their index.
func TestModel_AssignsArgumentPiecesToTheirCalls(t *testing.T) {
	piece := func(index int, id, name, arguments string) []byte {
		return openaitest.ChoiceEvent(jsonObject{"tool_calls": []jsonObject{{"index": index, "id": id, "function": jsonObject{
			"name":      name,
			"arguments": arguments,
		}}}}, nil)
	}
	stream := bytes.Join([][]byte{
		piece(0, "a", "add", `{"n"`), piece(1, "", "sub", `{"n"`), piece(0, "a", "add", ":1}"), piece(1, "", "", ":2}"),
		openaitest.ChoiceEvent(jsonObject{}, "stop"),
	}, nil)
	require.Empty(t, cmp.Diff([]conversation.ToolCall{
		{ID: "a", Name: "add", Arguments: `{"n":1}`}, {Name: "sub", Arguments: `{"n":2}`},
	}, ask(t, openModel(t, "test/large", serveAnswer(t, http.StatusOK, string(stream)))).Calls))
}

// A model name with an unknown prefix does not send its key to OpenAI.
func TestNew_SendsNoKeyToAnotherHost(t *testing.T) {
	_, err := openai.New("vllm/llama", openai.Config{Key: secret.New("of-vllm")})
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	require.ErrorContains(t, err, "give its BaseURL")
	_, err = openai.New("groq/llama", openai.Config{})
	require.ErrorContains(t, err, "set GROQ_API_KEY")
}

// The adapter omits stream_options for Mistral, which rejects requests with unknown fields.
func TestModel_OmitsParametersThatAServerRejects(t *testing.T) {
	var asked atomic.Pointer[string]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		text := string(data)
		asked.Store(&text)
		_, _ = w.Write([]byte("data: [DONE]\n\n"))
	}))
	t.Cleanup(s.Close)
	for name, plain := range map[string]bool{"mistral/small": true, "groq/llama": false} {
		require.NoError(t, ask(t, openModel(t, name, s.URL)).Err)
		require.Equal(t, !plain, strings.Contains(*asked.Load(), "stream_options"), name)
	}
}
