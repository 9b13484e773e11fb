package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// maxLogText limits how much of the provider's error text is logged, in bytes.
const maxLogText = 4 << 10

// responseError returns the error for a response with an error status. It reads the beginning of the body and
// closes it.
func (m *model) responseError(res *http.Response) error {
	c := parseErrorBody(llm.ReadErrorBody(res))
	return m.source.NewResponseError(res.StatusCode, res.Header, c.kind(res.StatusCode), c.text)
}

// streamError returns the error for an error event in a stream, whose HTTP status was 200.
func (m *model) streamError(data []byte) error {
	c := parseErrorBody(data)
	if status, err := strconv.Atoi(c.code); err == nil && status >= http.StatusBadRequest {
		return m.source.NewResponseError(status, nil, c.kind(status), c.text)
	}
	return m.source.NewError(cmp.Or(c.kind(0), llm.Unavailable), errors.New(c.text))
}

// errorBody holds the error that a provider reports.
type errorBody struct {
	code, errorType string // the provider's code and type of the error; either may be empty
	text            string // the provider's message, for the log
}

// parseErrorBody decodes the body of an error. OpenAI's form is {"error": {"message", "type", "code"}}. Other servers
// omit the outer or the inner object, or use "detail" for the message.
func parseErrorBody(body []byte) errorBody {
	type form struct {
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	var outer struct {
		form
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(body, &outer) // fields that cannot be decoded stay empty
	inner := outer.form
	_ = json.Unmarshal(outer.Error, &inner)
	text := cmp.Or(inner.Message, toText(outer.Error), toText(inner.Detail), strings.TrimSpace(string(body)))
	return errorBody{code: toText(inner.Code), errorType: inner.Type, text: conversation.Truncate(text, maxLogText)}
}

// toText returns a JSON string or number as text ("" for any other value).
func toText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return number.String()
	}
	return ""
}

// kind returns the kind of error that the body tells (empty if it tells no more than the status). The status is 0
// for an error within a stream.
func (e errorBody) kind(status int) llm.Kind {
	says := func(text ...string) bool {
		for _, t := range text {
			if e.code == t || e.errorType == t {
				return true
			}
		}
		return false
	}
	lower := strings.ToLower(e.text)
	switch {
	case says("insufficient_quota", "billing_hard_limit_reached"):
		return llm.Credits
	case says("context_length_exceeded", "exceed_context_size_error"), status == http.StatusBadRequest && strings.Contains(lower, "context length"):
		return llm.ContextLength
	case says("content_filter", "content_policy_violation", "moderation_blocked"):
		return llm.ContentFiltered
	case says("invalid_api_key"):
		return llm.Authentication
	case says("model_not_found"):
		return llm.NotFound
	case status == http.StatusForbidden && (says("paid_model_required") || strings.Contains(lower, "paid")):
		return llm.PaidModel
	case status == 0 && says("rate_limit_exceeded", "rate_limit_error", "tokens", "requests"):
		return llm.RateLimit
	case status == 0 && says("invalid_request_error"):
		return llm.BadRequest
	}
	return ""
}
