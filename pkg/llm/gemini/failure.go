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

// streamError returns the error for an incomplete reply. err is the error of the SDK (nil if the stream just
// ended).
func (m *model) streamError(ctx context.Context, x *exchange, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[genai.APIError](err); ok { // an event of the stream reported the error
		return apiError(m.source, e, http.Header{})
	}
	switch {
	case x.responseErr != nil:
		return x.responseErr
	case x.streamErr != nil: // the SDK may have read an incomplete event, so its error is misleading
		return m.source.NewConnectionError(ctx, x.streamErr)
	case x.hasResponse && err != nil:
		return m.source.NewError(llm.Malformed, err)
	}
	return m.source.NewConnectionError(ctx, cmp.Or(err, errors.New("the stream ended before the message did")))
}

// responseError returns the error for a response with an error status.
func responseError(s llm.Source, res *http.Response) error {
	var body struct {
		Error genai.APIError `json:"error"`
	}
	text := llm.ReadErrorBody(res)
	_ = json.Unmarshal(text, &body) // fields that cannot be decoded stay empty
	e := body.Error
	e.Code, e.Message = res.StatusCode, cmp.Or(e.Message, strings.TrimSpace(string(text)))
	return apiError(s, e, res.Header)
}

// maxLogText limits how much of the provider's error text is logged, in bytes.
const maxLogText = 4 << 10

// apiError converts an error of the API.
func apiError(s llm.Source, e genai.APIError, header http.Header) error {
	if wait := retryDelay(e); wait > 0 && header.Get("Retry-After") == "" {
		header = header.Clone()
		header.Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds()+1, 10))
	}
	return s.NewResponseError(e.Code, header, kindFromError(e), conversation.Truncate(e.Message, maxLogText))
}

// kindFromError returns the kind of an error of the API. It is empty if only the status tells the kind.
func kindFromError(e genai.APIError) llm.Kind {
	says := func(part string) bool { return strings.Contains(strings.ToLower(e.Message), part) }
	switch e.Code {
	case http.StatusBadRequest:
		switch {
		case says("api key not valid"), says("api key expired"), errorReason(e) == "API_KEY_INVALID":
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

// errorDetail is a machine-readable detail of an error, in the formats of google.rpc.
type errorDetail struct {
	Type       string `json:"@type"`
	Reason     string `json:"reason"`     // from google.rpc.ErrorInfo
	RetryDelay string `json:"retryDelay"` // from google.rpc.RetryInfo
}

// decodeDetails returns the details of e, except those that cannot be decoded.
func decodeDetails(e genai.APIError) []errorDetail {
	packed, err := json.Marshal(e.Details)
	if err != nil {
		return nil
	}
	var all []errorDetail
	if json.Unmarshal(packed, &all) != nil {
		return nil
	}
	return all
}

func errorReason(e genai.APIError) string {
	for _, d := range decodeDetails(e) {
		if d.Reason != "" {
			return d.Reason
		}
	}
	return ""
}

// retryDelay returns the delay that the provider requests (0 if it requests none).
func retryDelay(e genai.APIError) time.Duration {
	for _, d := range decodeDetails(e) {
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil {
			return wait
		}
	}
	return 0
}
