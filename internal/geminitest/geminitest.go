// Package geminitest implements the server side of the Gemini API, which package gemini speaks. An llmtest server with its Wire replies
// like a real server.
package geminitest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// Wire implements llmtest.Wire for the format of the Gemini API.
type Wire struct{}

type jsonObject = map[string]any

// newEvent returns one event of a stream.
func newEvent(fields jsonObject) []byte {
	fields["modelVersion"], fields["responseId"] = "gemini-test", "r1"
	return fmt.Appendf(nil, "data: %s\r\n\r\n", mustMarshal(fields))
}

// mustMarshal encodes an object that holds only texts and numbers, so encoding cannot fail.
func mustMarshal(v any) []byte {
	data, _ := json.Marshal(v)
	return data
}

// partEvent returns an event with one part of a message and the usage so far.
func partEvent(part, usage jsonObject) []byte {
	return newEvent(jsonObject{
		"candidates":    []jsonObject{{"content": jsonObject{"parts": []jsonObject{part}, "role": "model"}, "index": 0}},
		"usageMetadata": usage,
	})
}

// Stream implements llmtest.Wire.
func (Wire) Stream(r llmtest.Reply) llmtest.Stream {
	begin, end := usageFields(r.Usage)
	var body [][]byte
	for _, text := range r.Texts {
		body = append(body, partEvent(jsonObject{"text": text}, begin))
	}
	for _, c := range r.Calls {
		call := jsonObject{"name": c.Name}
		if args := strings.Join(c.ArgumentParts, ""); args != "" {
			call["args"] = json.RawMessage(args)
		}
		part := jsonObject{"functionCall": call}
		if c.Extra != "" {
			part["thoughtSignature"] = c.Extra
		}
		body = append(body, partEvent(part, begin))
	}
	return llmtest.Stream{
		Begin: [][]byte{partEvent(jsonObject{"text": "I think.", "thought": true}, begin)},
		Body:  body,
		End: [][]byte{newEvent(jsonObject{
			"candidates": []jsonObject{{
				"content": jsonObject{"parts": []jsonObject{{"text": ""}}, "role": "model"}, "finishReason": finishReason(r),
				"index": 0,
			}},
			"usageMetadata": end,
		})},
	}
}

// usageFields returns the usage fields of the events of a stream before the last, and of the last event.
func usageFields(u execution.Usage) (begin, end jsonObject) {
	thought := u.OutputTokens / 2
	begin = jsonObject{"promptTokenCount": u.InputTokens, "cachedContentTokenCount": u.CachedTokens, "totalTokenCount": u.InputTokens}
	return begin, jsonObject{
		"promptTokenCount": u.InputTokens, "cachedContentTokenCount": u.CachedTokens,
		"thoughtsTokenCount": thought, "candidatesTokenCount": u.OutputTokens - thought,
		"totalTokenCount": u.InputTokens + u.OutputTokens,
	}
}

func finishReason(r llmtest.Reply) string {
	switch {
	case r.Filtered:
		return "SAFETY"
	case r.Truncated:
		return "MAX_TOKENS"
	}
	return "STOP"
}

// errorStatuses maps kinds of errors to the provider's status names, for the kinds that have one.
var errorStatuses = map[llm.Kind]string{
	llm.Authentication: "UNAUTHENTICATED",
	llm.Permission:     "PERMISSION_DENIED",
	llm.RateLimit:      "RESOURCE_EXHAUSTED",
	llm.Credits:        "RESOURCE_EXHAUSTED",
	llm.PaidModel:      "RESOURCE_EXHAUSTED",
	llm.NotFound:       "NOT_FOUND",
	llm.Unavailable:    "UNAVAILABLE",
}

// errorMessages maps kinds of errors to the provider's messages, for kinds that the status alone does not
// identify.
var errorMessages = map[llm.Kind]string{
	llm.ContextLength: "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576). ",
	llm.Credits:       "Your prepayment credits are depleted. ",
	llm.PaidModel:     "Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 0. ",
}

// ErrorBody implements llmtest.Wire.
func (Wire) ErrorBody(status int, kind llm.Kind, text string) []byte {
	e := jsonObject{"code": status, "message": errorMessages[kind] + text, "status": "INVALID_ARGUMENT"}
	if code, ok := errorStatuses[kind]; ok {
		e["status"] = code
	}
	return mustMarshal(jsonObject{"error": e})
}

// ErrorEvent implements llmtest.Wire.
func (w Wire) ErrorEvent(kind llm.Kind, text string) []byte {
	status := http.StatusServiceUnavailable
	if kind == llm.RateLimit {
		status = http.StatusTooManyRequests
	}
	return fmt.Appendf(nil, "data: %s\r\n\r\n", w.ErrorBody(status, kind, text))
}

// wireRequest is a request in the format that the API receives.
type wireRequest struct {
	SystemInstruction content
	Contents          []content
	Tools             []struct{ FunctionDeclarations []function }
	ToolConfig        json.RawMessage
	GenerationConfig  struct {
		MaxOutputTokens  int
		ResponseMIMEType string `json:"responseMimeType"`
		ResponseSchema   struct {
			Type string
			Enum []string
		}
	}
}

type function struct {
	Name, Description    string
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
}

type content struct {
	Role  string
	Parts []struct {
		Text             string
		ThoughtSignature string
		InlineData       *blob
		FunctionCall     *struct {
			ID, Name string
			Args     json.RawMessage
		}
		FunctionResponse *struct {
			ID, Name string
			Response struct{ Output string }
			Parts    []struct {
				InlineData *blob
			}
		}
	}
}

type blob struct {
	MIMEType string `json:"mimeType"`
	Data     []byte
}

// DecodeRequest implements llmtest.Wire.
func (Wire) DecodeRequest(r *http.Request, body []byte) (llmtest.DecodedRequest, error) {
	var a wireRequest
	if err := json.Unmarshal(body, &a); err != nil {
		return llmtest.DecodedRequest{}, err
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/v1beta/models/")
	name, stream := strings.CutSuffix(name, ":streamGenerateContent")
	if !ok || !stream || r.URL.RawQuery != "alt=sse" {
		return llmtest.DecodedRequest{}, fmt.Errorf("%s %s is no request to the Gemini API", r.Method, r.URL)
	}
	out := llmtest.DecodedRequest{Model: name, Key: r.Header.Get("X-Goog-Api-Key")}
	for _, p := range a.SystemInstruction.Parts {
		out.System += p.Text
	}
	for _, t := range a.Tools {
		for _, f := range t.FunctionDeclarations {
			out.Tools = append(out.Tools, llm.ToolSpec{Name: f.Name, Description: f.Description, Schema: f.ParametersJSONSchema})
		}
	}
	last, afterResults := "", false
	for _, c := range a.Contents {
		if c.Role == last && !afterResults || len(c.Parts) == 0 || last == "" && c.Role != "user" {
			return out, fmt.Errorf("the API refuses a content of %s after one of %q", c.Role, last)
		}
		var err error
		if afterResults, err = c.hasResults(name); err != nil {
			return out, err
		}
		last = c.Role
		out.Messages = append(out.Messages, toMessages(c)...)
	}
	return out, nil
}

// hasResults reports whether the content has the results of a round. It returns an error if the API would refuse what
// stands with them.
func (c content) hasResults(model string) (bool, error) {
	results := 0
	for _, p := range c.Parts {
		if p.FunctionResponse == nil {
			continue
		}
		results++
		if len(p.FunctionResponse.Parts) > 0 && strings.HasPrefix(model, "gemini-2") {
			return false, fmt.Errorf("%s refuses files in a function response", model)
		}
	}
	if results > 0 && results < len(c.Parts) {
		return false, errors.New("the API refuses other parts beside function responses")
	}
	return results > 0, nil
}

// toMessages converts a content to messages: one message of the model, or several of the user.
func toMessages(c content) []conversation.Message {
	m := conversation.Message{Role: conversation.RoleAssistant}
	var user []conversation.Message
	for _, p := range c.Parts {
		switch {
		case p.FunctionCall != nil:
			m.ToolCalls = append(m.ToolCalls, conversation.ToolCall{
				ID: p.FunctionCall.ID, Name: p.FunctionCall.Name,
				Arguments: cmp.Or(string(p.FunctionCall.Args), "{}"), Extra: p.ThoughtSignature,
			})
		case p.InlineData != nil:
			file := conversation.Attachment{MediaType: p.InlineData.MIMEType, Data: p.InlineData.Data}
			user = append(user, conversation.Message{Role: conversation.RoleUser, Attachments: []conversation.Attachment{file}})
		case p.FunctionResponse != nil:
			result := conversation.Message{Role: conversation.RoleTool, ToolCallID: p.FunctionResponse.ID, Text: p.FunctionResponse.Response.Output}
			for _, f := range p.FunctionResponse.Parts {
				result.Attachments = append(result.Attachments, conversation.Attachment{MediaType: f.InlineData.MIMEType, Data: f.InlineData.Data})
			}
			user = append(user, result)
		case c.Role == "model":
			m.Text += p.Text
		default:
			user = append(user, conversation.User(p.Text))
		}
	}
	if c.Role == "model" {
		return []conversation.Message{m}
	}
	return user
}
