// Package openaitest implements the server side of the Chat Completions format, which package openai speaks. An
// llmtest server with its Wire replies like a real Chat Completions server.
package openaitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// Wire implements llmtest.Wire for the Chat Completions format, as the public reference describes it.
type Wire struct{}

type jsonObject = map[string]any

// EncodeEvent encodes a chunk as an event of the stream.
func EncodeEvent(chunk map[string]any) []byte {
	return fmt.Appendf(nil, "data: %s\n\n", mustMarshal(chunk))
}

// mustMarshal encodes an object that holds only texts and numbers, so encoding cannot fail.
func mustMarshal(v jsonObject) []byte {
	data, _ := json.Marshal(v)
	return data
}

// ChoiceEvent returns an event of the stream that holds a chunk with one choice. finish is the finish reason (nil
// while the reply continues).
func ChoiceEvent(delta map[string]any, finish any) []byte {
	return EncodeEvent(jsonObject{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1763740000, "model": "test-large-2026", "usage": nil,
		"choices": []jsonObject{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}},
	})
}

// Stream implements llmtest.Wire.
func (Wire) Stream(r llmtest.Reply) llmtest.Stream {
	s := llmtest.Stream{Begin: [][]byte{ChoiceEvent(jsonObject{"role": "assistant", "content": "", "refusal": nil}, nil)}}
	for _, text := range r.Texts {
		s.Body = append(s.Body, ChoiceEvent(jsonObject{"content": text}, nil))
	}
	finish := "stop"
	for i, c := range r.Calls {
		finish = "tool_calls"
		first := jsonObject{"index": i, "id": c.ID, "type": "function", "function": jsonObject{"name": c.Name, "arguments": ""}}
		if c.Extra != "" {
			first["extra_content"] = jsonObject{"google": jsonObject{"thought_signature": c.Extra}}
		}
		s.Body = append(s.Body, ChoiceEvent(jsonObject{"tool_calls": []jsonObject{first}}, nil))
		for _, part := range c.ArgumentParts {
			s.Body = append(s.Body, ChoiceEvent(jsonObject{"tool_calls": []jsonObject{{"index": i, "function": jsonObject{"arguments": part}}}}, nil))
		}
	}
	if r.Truncated {
		finish = "length"
	}
	if r.Filtered {
		finish = "content_filter"
	}
	s.End = [][]byte{
		ChoiceEvent(jsonObject{}, finish),
		EncodeEvent(jsonObject{"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": []jsonObject{}, "usage": jsonObject{
			"prompt_tokens": r.Usage.InputTokens, "completion_tokens": r.Usage.OutputTokens, "total_tokens": r.Usage.InputTokens + r.Usage.OutputTokens,
			"prompt_tokens_details": jsonObject{"cached_tokens": r.Usage.CachedTokens, "cache_write_tokens": r.Usage.CacheWriteTokens, "audio_tokens": 0},
		}}),
		[]byte("data: [DONE]\n\n"),
	}
	return s
}

var errorCodes = map[llm.Kind]string{
	llm.Authentication: "invalid_api_key", llm.ContextLength: "context_length_exceeded",
	llm.NotFound: "model_not_found", llm.RateLimit: "rate_limit_exceeded",
}

// ErrorBody implements llmtest.Wire.
func (Wire) ErrorBody(_ int, kind llm.Kind, text string) []byte {
	var code any
	if c, ok := errorCodes[kind]; ok {
		code = c
	}
	return mustMarshal(jsonObject{"error": jsonObject{"message": text, "type": "invalid_request_error", "param": nil, "code": code}})
}

// ErrorEvent implements llmtest.Wire.
func (Wire) ErrorEvent(kind llm.Kind, text string) []byte {
	return EncodeEvent(jsonObject{"error": jsonObject{"message": text, "type": "server_error", "code": errorCodes[kind]}})
}

// requestBody holds the fields of a request that the test suite checks.
type requestBody struct {
	Model         string
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct {
		Role       conversation.Role
		Content    content
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

// DecodeRequest implements llmtest.Wire.
func (Wire) DecodeRequest(r *http.Request, data []byte) (asked llmtest.DecodedRequest, err error) {
	var b requestBody
	if err := json.Unmarshal(data, &b); err != nil {
		return asked, err
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") || !b.Stream || !b.StreamOptions.IncludeUsage {
		return asked, fmt.Errorf("%s %s is no request for a stream with usage", r.Method, r.URL.Path)
	}
	asked.Model, asked.Key = b.Model, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	for i, m := range b.Messages {
		said := conversation.Message{Role: m.Role, ToolCallID: m.ToolCallID}
		if said.Text, said.Attachments, err = m.Content.textAndFiles(); err != nil {
			return asked, err
		}
		if len(said.Attachments) > 0 && m.Role != conversation.RoleUser {
			return asked, fmt.Errorf("image URLs are only allowed for messages with role 'user', but this message has role %q", m.Role)
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
