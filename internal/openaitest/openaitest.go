// Package openaitest implements the server side of the Chat Completions format, which package openai speaks. An
// llmtest server with its Wire replies like a real Chat Completions server.
package openaitest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// Wire implements llmtest.Wire for the Chat Completions format, as the public references of the servers describe it.
type Wire struct {
	Form Form // how the server sends the reasoning of its model (empty means ReasoningContent)
	// RequiresReasoning makes the server reject a message with calls that has no reasoning_content, as DeepSeek and
	// Moonshot do while the model thinks: https://api-docs.deepseek.com/guides/thinking_mode#tool-calls and
	// https://github.com/anomalyco/opencode/issues/24722. DeepSeek also does so if the model has thought nothing:
	// https://github.com/deepseek-ai/deepseek-harness/discussions/739.
	RequiresReasoning bool
}

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
func (w Wire) Stream(r llmtest.Reply) llmtest.Stream {
	s := llmtest.Stream{Begin: [][]byte{ChoiceEvent(jsonObject{"role": "assistant", "content": "", "refusal": nil}, nil)}}
	for _, delta := range w.thoughtDeltas(r.Thoughts) {
		s.Begin = append(s.Begin, ChoiceEvent(delta, nil))
	}
	for _, text := range r.Texts {
		s.Body = append(s.Body, ChoiceEvent(jsonObject{"content": w.text(text)}, nil))
	}
	for i, c := range r.Calls {
		first := jsonObject{"index": i, "id": c.ID, "type": "function", "function": jsonObject{"name": c.Name, "arguments": ""}}
		if c.Extra != "" {
			first["extra_content"] = jsonObject{"google": jsonObject{"thought_signature": c.Extra}}
		}
		s.Body = append(s.Body, ChoiceEvent(jsonObject{"tool_calls": []jsonObject{first}}, nil))
		for _, part := range c.ArgumentParts {
			s.Body = append(s.Body, ChoiceEvent(jsonObject{"tool_calls": []jsonObject{{"index": i, "function": jsonObject{"arguments": part}}}}, nil))
		}
	}
	s.End = [][]byte{
		ChoiceEvent(jsonObject{}, finishReason(r)),
		EncodeEvent(jsonObject{"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": []jsonObject{}, "usage": usageFields(r.Usage)}),
		[]byte("data: [DONE]\n\n"),
	}
	return s
}

func usageFields(u execution.Usage) jsonObject {
	return jsonObject{
		"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"prompt_tokens_details": jsonObject{"cached_tokens": u.CachedTokens, "cache_write_tokens": u.CacheWriteTokens, "audio_tokens": 0},
	}
}

func finishReason(r llmtest.Reply) string {
	switch {
	case r.Reason != "":
		return r.Reason
	case r.Filtered:
		return "content_filter"
	case r.Truncated:
		return "length"
	case len(r.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

// Unstreamed implements llmtest.Wire.
func (w Wire) Unstreamed(r llmtest.Reply) []byte {
	message := jsonObject{"role": "assistant", "content": w.text(strings.Join(r.Texts, "")), "refusal": nil}
	maps.Copy(message, w.wholeThought(strings.Join(r.Thoughts, ""), strings.Join(r.Texts, "")))
	var calls []jsonObject
	for _, c := range r.Calls {
		calls = append(calls, jsonObject{"id": c.ID, "type": "function", "function": jsonObject{"name": c.Name, "arguments": strings.Join(c.ArgumentParts, "")}})
	}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	return mustMarshal(jsonObject{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1763740000, "model": "test-large-2026",
		"choices": []jsonObject{{"index": 0, "message": message, "logprobs": nil, "finish_reason": finishReason(r)}},
		"usage":   usageFields(r.Usage),
	})
}

var errorCodes = map[llm.Kind]string{
	llm.Authentication: "invalid_api_key", llm.ContextLength: "context_length_exceeded",
	llm.NotFound: "model_not_found", llm.RateLimit: "rate_limit_exceeded",
}

// ErrorBody implements llmtest.Wire.
func (Wire) ErrorBody(status int, kind llm.Kind, text string) []byte {
	var code any
	if c, ok := errorCodes[kind]; ok {
		code = c
	}
	sort := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		sort = "server_error"
	}
	return mustMarshal(jsonObject{"error": jsonObject{"message": text, "type": sort, "param": nil, "code": code}})
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
	Messages []requestMessage
	Tools    []struct {
		Type     string
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
}

// requestMessage is a message of a request.
type requestMessage struct {
	Role    conversation.Role
	Content content
	reasoningFields
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

// decodeMessage returns a message of a request, and the thought in it.
func (w Wire) decodeMessage(m requestMessage) (said conversation.Message, thought string, err error) {
	if said, thought, err = m.Content.decode(); err != nil {
		return said, "", err
	}
	said.Role, said.ToolCallID = m.Role, m.ToolCallID
	for _, c := range m.ToolCalls {
		if c.Type != "function" {
			return said, "", fmt.Errorf("call %s has the type %q", c.ID, c.Type)
		}
		said.ToolCalls = append(said.ToolCalls, conversation.ToolCall{
			ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments, Extra: c.ExtraContent.Google.Signature,
		})
	}
	if w.RequiresReasoning && len(m.ToolCalls) > 0 && m.ReasoningContent == nil {
		return said, "", errors.New("the reasoning_content in the thinking mode must be passed back to the API")
	}
	thought, err = m.decodeThought(cmp.Or(w.Form, ReasoningContent), thought)
	return said, thought, err
}

// DecodeRequest implements llmtest.Wire.
func (w Wire) DecodeRequest(r *http.Request, data []byte) (asked llmtest.DecodedRequest, err error) {
	var b requestBody
	if err := json.Unmarshal(data, &b); err != nil {
		return asked, err
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") || !b.Stream || !b.StreamOptions.IncludeUsage {
		return asked, fmt.Errorf("%s %s is no request for a stream with usage", r.Method, r.URL.Path)
	}
	asked.Thoughts = map[int]string{}
	asked.Model, asked.Key = b.Model, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	for i, m := range b.Messages {
		said, thought, err := w.decodeMessage(m)
		if err != nil {
			return asked, fmt.Errorf("message %d: %w", i, err)
		}
		if thought != "" {
			asked.Thoughts[len(asked.Messages)] = thought
		}
		if len(said.Attachments) > 0 && m.Role != conversation.RoleUser {
			return asked, fmt.Errorf("image URLs are only allowed for messages with role 'user', but this message has role %q", m.Role)
		}
		if i == 0 && m.Role == conversation.RoleSystem {
			asked.System = said.Text
			continue
		}
		asked.Messages = append(asked.Messages, said)
	}
	for _, t := range b.Tools {
		asked.Tools = append(asked.Tools, llm.ToolSpec{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	return asked, nil
}
