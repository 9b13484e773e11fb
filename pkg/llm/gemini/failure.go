package gemini

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// streamError returns the failure for an incomplete reply. Err is the SDK's error (nil if the stream just ended).
func (m *model) streamError(ctx context.Context, x *exchange, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[genai.APIError](err); ok { // an event of the stream told of it
		return apiError(m.source, e, http.Header{})
	}
	switch {
	case x.refused != nil:
		return x.refused
	case x.broken != nil: // so the SDK may have seen half of an event
		return m.source.Broken(ctx, x.broken)
	case x.answered && err != nil:
		return m.source.Fail(llm.Malformed, err)
	}
	return m.source.Broken(ctx, cmp.Or(err, errors.New("the stream ended before the message did")))
}

// responseError returns the failure for a response with an error status.
func responseError(s llm.Source, res *http.Response) error {
	var body struct {
		Error genai.APIError `json:"error"`
	}
	text := llm.ReadRefusal(res)
	_ = json.Unmarshal(text, &body) // what cannot be read stays empty
	e := body.Error
	e.Code, e.Message = res.StatusCode, cmp.Or(e.Message, strings.TrimSpace(string(text)))
	return apiError(s, e, res.Header)
}

// maxLogText limits the provider's own text in the log, in bytes.
const maxLogText = 4 << 10

// apiError returns the failure for an error that the provider reports.
func apiError(s llm.Source, e genai.APIError, header http.Header) error {
	if wait := retryDelay(e); wait > 0 && header.Get("Retry-After") == "" {
		header = header.Clone()
		header.Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds()+1, 10))
	}
	return s.Refuse(e.Code, header, kindOf(e), conversation.Cut(e.Message, maxLogText))
}

// kindOf returns the kind of an error of the provider (empty if only the status says it).
func kindOf(e genai.APIError) llm.Kind {
	says := func(part string) bool { return strings.Contains(strings.ToLower(e.Message), part) }
	switch e.Code {
	case http.StatusBadRequest:
		switch {
		case says("api key not valid"), says("api key expired"), reason(e) == "API_KEY_INVALID":
			return llm.Authentication
		case says("token count") && says("exceeds"):
			return llm.ContextLength
		case e.Status == "FAILED_PRECONDITION" && says("billing"):
			return llm.PaidModel
		}
	case http.StatusTooManyRequests:
		switch {
		case says("free_tier") && says("limit: 0"):
			return llm.PaidModel
		case says("credits are depleted"), says("billing account"):
			return llm.Credits
		}
	}
	return ""
}

// detail is a machine-readable part of an error, in the forms of google.rpc.
type detail struct {
	Type       string `json:"@type"`
	Reason     string `json:"reason"`     // of google.rpc.ErrorInfo
	RetryDelay string `json:"retryDelay"` // of google.rpc.RetryInfo
}

// details returns the details of e, without those that cannot be decoded.
func details(e genai.APIError) []detail {
	packed, err := json.Marshal(e.Details)
	if err != nil {
		return nil
	}
	var all []detail
	if json.Unmarshal(packed, &all) != nil {
		return nil
	}
	return all
}

func reason(e genai.APIError) string {
	for _, d := range details(e) {
		if d.Reason != "" {
			return d.Reason
		}
	}
	return ""
}

// retryDelay returns the delay that the provider requests (0 if it requests none).
func retryDelay(e genai.APIError) time.Duration {
	for _, d := range details(e) {
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil {
			return wait
		}
	}
	return 0
}
