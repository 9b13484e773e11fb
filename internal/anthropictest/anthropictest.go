// Package anthropictest implements the server side of the Messages API, which package anthropic speaks. An llmtest server with its Wire replies
// like a real server.
package anthropictest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// Wire implements llmtest.Wire for the format of the Messages API.
type Wire struct{}

type jsonObject = map[string]any

// newEvent returns one event of a stream.
func newEvent(kind string, fields jsonObject) []byte {
	fields["type"] = kind
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, mustMarshal(fields))
}

// mustMarshal encodes an object that holds only texts and numbers, so encoding cannot fail.
func mustMarshal(v any) []byte {
	data, _ := json.Marshal(v)
	return data
}

// Stream implements llmtest.Wire.
func (Wire) Stream(r llmtest.Reply) llmtest.Stream {
	index := 0
	var body [][]byte
	block := func(content jsonObject, deltas ...jsonObject) {
		body = append(body, newEvent("content_block_start", jsonObject{"index": index, "content_block": content}))
		for _, d := range deltas {
			body = append(body, newEvent("content_block_delta", jsonObject{"index": index, "delta": d}))
		}
		body = append(body, newEvent("content_block_stop", jsonObject{"index": index}))
		index++
	}
	if len(r.Texts) > 0 {
		var deltas []jsonObject
		for _, text := range r.Texts {
			deltas = append(deltas, jsonObject{"type": "text_delta", "text": text})
		}
		block(jsonObject{"type": "text", "text": ""}, deltas...)
	}
	for _, c := range r.Calls {
		if c.Extra != "" {
			block(jsonObject{"type": "thinking", "thinking": "", "signature": ""},
				jsonObject{"type": "thinking_delta", "thinking": "I need "},
				jsonObject{"type": "thinking_delta", "thinking": c.Name},
				jsonObject{"type": "signature_delta", "signature": c.Extra})
		}
		deltas := []jsonObject{{"type": "input_json_delta", "partial_json": ""}}
		for _, part := range c.ArgumentParts {
			deltas = append(deltas, jsonObject{"type": "input_json_delta", "partial_json": part})
		}
		block(jsonObject{"type": "tool_use", "id": c.ID, "name": c.Name, "input": jsonObject{}}, deltas...)
	}
	begin, end := usageFields(r.Usage)
	return llmtest.Stream{
		Begin: [][]byte{
			newEvent("message_start", jsonObject{"message": jsonObject{
				"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-test", "content": []any{},
				"stop_reason": nil, "stop_sequence": nil, "usage": begin,
			}}),
			newEvent("ping", jsonObject{}),
		},
		Body: body,
		End: [][]byte{
			newEvent("message_delta", jsonObject{"delta": jsonObject{"stop_reason": stopReason(r), "stop_sequence": nil}, "usage": end}),
			newEvent("message_stop", jsonObject{}),
		},
	}
}

// usageFields returns the usage fields of the first and of the last event of a stream.
func usageFields(u execution.Usage) (begin, end jsonObject) {
	begin = jsonObject{
		"input_tokens":                u.InputTokens - u.CachedTokens - u.CacheWriteTokens,
		"cache_read_input_tokens":     u.CachedTokens,
		"cache_creation_input_tokens": u.CacheWriteTokens,
		"output_tokens":               1,
	}
	return begin, jsonObject{"output_tokens": u.OutputTokens}
}

func stopReason(r llmtest.Reply) string {
	switch {
	case r.Filtered:
		return "refusal"
	case r.Truncated:
		return "max_tokens"
	case len(r.Calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

// errorTypes maps kinds of errors to the provider's error types, for the kinds that have one.
var errorTypes = map[llm.Kind]string{
	llm.Authentication: "authentication_error",
	llm.Permission:     "permission_error",
	llm.RateLimit:      "rate_limit_error",
	llm.Credits:        "billing_error",
	llm.NotFound:       "not_found_error",
	llm.Unavailable:    "overloaded_error",
	llm.BadRequest:     "invalid_request_error",
	llm.ContextLength:  "invalid_request_error",
}

// ErrorBody implements llmtest.Wire.
func (Wire) ErrorBody(_ int, kind llm.Kind, text string) []byte {
	if kind == llm.ContextLength {
		text = "prompt is too long: 210000 tokens > 200000 maximum; " + text
	}
	e := jsonObject{"type": "api_error", "message": text}
	if code, ok := errorTypes[kind]; ok {
		e["type"] = code
	}
	return mustMarshal(jsonObject{"type": "error", "error": e, "request_id": "req_01"})
}

// ErrorEvent implements llmtest.Wire.
func (w Wire) ErrorEvent(kind llm.Kind, text string) []byte {
	return fmt.Appendf(nil, "event: error\ndata: %s\n\n", w.ErrorBody(0, kind, text))
}

// Request is a request in the format that the API receives.
type Request struct {
	Model     string
	MaxTokens int  `json:"max_tokens"`
	Stream    bool `json:"stream"`
	System    []Block
	Messages  []struct {
		Role    conversation.Role
		Content []Block
	}
	Tools []struct {
		Name, Description string
		InputSchema       json.RawMessage `json:"input_schema"`
		CacheControl      json.RawMessage `json:"cache_control"`
	}
	ToolChoice json.RawMessage `json:"tool_choice"`
	Thinking   json.RawMessage
}

// Block is a block of content.
type Block struct {
	Type, Text, ID, Name, Thinking, Signature, Data string
	Input                                           json.RawMessage
	ToolUseID                                       string `json:"tool_use_id"`
	Content                                         []Block
	CacheControl                                    json.RawMessage `json:"cache_control"`
	Title                                           string
	Source                                          struct {
		Type      string
		MediaType string `json:"media_type"`
		Data      []byte
	}
}

// DecodeRequest implements llmtest.Wire.
func (Wire) DecodeRequest(r *http.Request, body []byte) (llmtest.DecodedRequest, error) {
	var a Request
	if err := json.Unmarshal(body, &a); err != nil {
		return llmtest.DecodedRequest{}, err
	}
	if r.URL.Path != "/v1/messages" || r.Header.Get("Anthropic-Version") != "2023-06-01" || !a.Stream || a.MaxTokens == 0 {
		return llmtest.DecodedRequest{}, fmt.Errorf("%s %s with %s is no request to the Messages API", r.Method, r.URL, body)
	}
	out := llmtest.DecodedRequest{Model: a.Model, Key: r.Header.Get("X-Api-Key")}
	for _, b := range a.System {
		out.System += b.Text
	}
	for _, t := range a.Tools {
		out.Tools = append(out.Tools, llm.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.InputSchema})
	}
	var err error
	out.Messages, err = a.messages()
	return out, err
}

// messages returns the messages of the request. It returns an error if the API would refuse their order.
func (a Request) messages() (all []conversation.Message, _ error) {
	last := conversation.Role("")
	for _, m := range a.Messages {
		if m.Role == last || len(m.Content) == 0 || last == "" && m.Role != conversation.RoleUser {
			return nil, fmt.Errorf("the API refuses a message of %s after one of %q", m.Role, last)
		}
		last = m.Role
		if m.Role == conversation.RoleAssistant {
			all = append(all, toAssistantMessage(m.Content))
			continue
		}
		for _, b := range m.Content {
			message, err := toUserMessage(b)
			if err != nil {
				return nil, err
			}
			all = append(all, message)
		}
	}
	return all, nil
}

// toUserMessage converts a block of a user message: a text, a file or a tool result.
func toUserMessage(b Block) (conversation.Message, error) {
	switch b.Type {
	case "text":
		return conversation.User(b.Text), nil
	case "image", "document":
		file, err := toFile(b)
		return conversation.Message{Role: conversation.RoleUser, Attachments: []conversation.Attachment{file}}, err
	case "tool_result":
		result := conversation.Message{Role: conversation.RoleTool, ToolCallID: b.ToolUseID}
		for _, c := range b.Content {
			if c.Type == "text" {
				result.Text += c.Text
				continue
			}
			file, err := toFile(c)
			if err != nil {
				return conversation.Message{}, err
			}
			result.Attachments = append(result.Attachments, file)
		}
		return result, nil
	default:
		return conversation.Message{}, fmt.Errorf("a block of type %q", b.Type)
	}
}

// toFile converts a block of an image or a document.
func toFile(b Block) (conversation.Attachment, error) {
	if b.Type != "image" && b.Type != "document" || b.Source.Type != "base64" {
		return conversation.Attachment{}, fmt.Errorf("a block of type %q with a source of type %q", b.Type, b.Source.Type)
	}
	return conversation.Attachment{Name: b.Title, MediaType: b.Source.MediaType, Data: b.Source.Data}, nil
}

// toAssistantMessage converts the content of an assistant message. The signature of a thought becomes the Extra of
// the call that follows it.
func toAssistantMessage(blocks []Block) conversation.Message {
	m := conversation.Message{Role: conversation.RoleAssistant}
	extra := ""
	for _, b := range blocks {
		switch b.Type {
		case "text":
			m.Text += b.Text
		case "thinking":
			extra = b.Signature
			if !strings.HasPrefix(b.Thinking, "I need ") {
				extra = "the thought is not what it was: " + b.Thinking
			}
		case "tool_use":
			m.ToolCalls = append(m.ToolCalls, conversation.ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input), Extra: extra})
			extra = ""
		}
	}
	return m
}
