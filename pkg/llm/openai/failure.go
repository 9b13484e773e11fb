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

// maxText is how much of the provider's own text goes to the log.
const maxText = 4 << 10

// refusal is the failure of a response that is no answer. It reads the beginning of the body, and closes it.
func (m *model) refusal(res *http.Response) error {
	c := complaintIn(llm.ReadRefusal(res))
	return m.source.Refuse(res.StatusCode, res.Header, c.kind(res.StatusCode), c.text)
}

// interrupted is the failure that a stream tells of under way, where the status says nothing.
func (m *model) interrupted(data []byte) error {
	c := complaintIn(data)
	if status, err := strconv.Atoi(c.code); err == nil && status >= http.StatusBadRequest {
		return m.source.Refuse(status, nil, c.kind(status), c.text)
	}
	return m.source.Fail(cmp.Or(c.kind(0), llm.Unavailable), errors.New(c.text))
}

// complaint is what a provider says that is wrong.
type complaint struct {
	code, sort string // its own words for what is wrong; either may be empty
	text       string // for the log
}

// complaintIn reads a body. OpenAI's form is {"error": {"message", "type", "code"}}; others
// leave the outer object out, or the inner one, or call the message detail.
func complaintIn(body []byte) complaint {
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
	_ = json.Unmarshal(body, &outer) // what cannot be read stays empty
	inner := outer.form
	_ = json.Unmarshal(outer.Error, &inner)
	text := cmp.Or(inner.Message, words(outer.Error), words(inner.Detail), strings.TrimSpace(string(body)))
	return complaint{code: words(inner.Code), sort: inner.Type, text: conversation.Cut(text, maxText)}
}

// words is a JSON string or number as text; empty for anything else.
func words(raw json.RawMessage) string {
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

// kind returns what the text of the provider says and the status does not (empty if it says no more). The status is 0
// for an error within a stream.
func (c complaint) kind(status int) llm.Kind {
	says := func(text ...string) bool {
		for _, t := range text {
			if c.code == t || c.sort == t {
				return true
			}
		}
		return false
	}
	lower := strings.ToLower(c.text)
	switch {
	case says("insufficient_quota", "billing_hard_limit_reached"):
		return llm.Credits
	case says("context_length_exceeded", "exceed_context_size_error"), status == http.StatusBadRequest && strings.Contains(lower, "context length"):
		return llm.ContextLength
	case says("content_filter", "content_policy_violation", "moderation_blocked"):
		return llm.Refused
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
