package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// wire is the Chat Completions format, as the public reference describes it.
type wire struct{}

type object = map[string]any

// event is a chunk as it stands in a stream.
func event(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, "data: %s\n\n", data)
}

// choice is a chunk with one choice.
func choice(delta object, finish any) []byte {
	return event(object{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1763740000, "model": "test-large-2026", "usage": nil,
		"choices": []object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}},
	})
}

func (wire) Stream(r llmtest.Reply) llmtest.Stream {
	s := llmtest.Stream{Begin: [][]byte{choice(object{"role": "assistant", "content": "", "refusal": nil}, nil)}}
	for _, text := range r.Say {
		s.Body = append(s.Body, choice(object{"content": text}, nil))
	}
	finish := "stop"
	for i, c := range r.Calls {
		finish = "tool_calls"
		first := object{"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""}}
		if c.Extra != "" {
			first["extra_content"] = object{"google": object{"thought_signature": c.Extra}}
		}
		s.Body = append(s.Body, choice(object{"tool_calls": []object{first}}, nil))
		for _, part := range c.Parts {
			s.Body = append(s.Body, choice(object{"tool_calls": []object{{"index": i, "function": object{"arguments": part}}}}, nil))
		}
	}
	if r.Cut {
		finish = "length"
	}
	if r.Filtered {
		finish = "content_filter"
	}
	s.End = [][]byte{
		choice(object{}, finish),
		event(object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": []object{}, "usage": object{
			"prompt_tokens": r.Usage.InputTokens, "completion_tokens": r.Usage.OutputTokens, "total_tokens": r.Usage.InputTokens + r.Usage.OutputTokens,
			"prompt_tokens_details": object{"cached_tokens": r.Usage.CachedTokens, "cache_write_tokens": r.Usage.CacheWriteTokens, "audio_tokens": 0},
		}}),
		[]byte("data: [DONE]\n\n"),
	}
	return s
}

var codes = map[llm.Kind]string{
	llm.Authentication: "invalid_api_key", llm.ContextLength: "context_length_exceeded",
	llm.NotFound: "model_not_found", llm.RateLimit: "rate_limit_exceeded",
}

func (wire) Refusal(_ int, kind llm.Kind, text string) []byte {
	var code any
	if c, ok := codes[kind]; ok {
		code = c
	}
	data, err := json.Marshal(object{"error": object{"message": text, "type": "invalid_request_error", "param": nil, "code": code}})
	if err != nil {
		panic(err)
	}
	return data
}

func (wire) Interruption(kind llm.Kind, text string) []byte {
	return event(object{"error": object{"message": text, "type": "server_error", "code": codes[kind]}})
}

// body is a request, as far as the suite wants to know it.
type body struct {
	Model         string
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct {
		Role       conversation.Role
		Content    *string
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID, Type     string
			Function     struct{ Name, Arguments string }
			ExtraContent struct {
				Google struct {
					Signature string `json:"thought_signature"`
				}
			} `json:"extra_content"`
		} `json:"tool_calls"`
	}
	Tools []struct {
		Type     string
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
}

func (wire) Asked(r *http.Request, data []byte) (asked llmtest.Asked, err error) {
	var b body
	if err := json.Unmarshal(data, &b); err != nil {
		return asked, err
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") || !b.Stream || !b.StreamOptions.IncludeUsage {
		return asked, fmt.Errorf("%s %s is no request for a stream with usage", r.Method, r.URL.Path)
	}
	asked.Model, asked.Key = b.Model, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	for i, m := range b.Messages {
		said := conversation.Message{Role: m.Role, ToolCallID: m.ToolCallID}
		if m.Content != nil {
			said.Text = *m.Content
		}
		if i == 0 && m.Role == conversation.RoleSystem {
			asked.System = said.Text
			continue
		}
		for _, c := range m.ToolCalls {
			if c.Type != "function" {
				return asked, fmt.Errorf("call %s has the type %q", c.ID, c.Type)
			}
			said.ToolCalls = append(said.ToolCalls, conversation.ToolCall{
				ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments, Extra: c.ExtraContent.Google.Signature,
			})
		}
		asked.Messages = append(asked.Messages, said)
	}
	for _, t := range b.Tools {
		asked.Tools = append(asked.Tools, llm.ToolSpec{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	return asked, nil
}
