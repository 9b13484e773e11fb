package anthropic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// checkResponse is a middleware that returns an error for a response with an error status. Without it the SDK would
// read the whole body, which may be huge. It turns an answer that is not streamed into a stream.
func (m *model) checkResponse(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	if err != nil {
		return res, err
	}
	if res.StatusCode < http.StatusBadRequest {
		return res, toEventStream(res)
	}
	kind, text := parseErrorBody(llm.ReadErrorBody(res))
	return nil, m.source.NewResponseError(res.StatusCode, res.Header, kind, text)
}

// streamError returns the error for a stream that ended before its message was complete. err is nil if the stream
// just ended.
func (m *model) streamError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok { // an event of the stream reported the error
		kind, text := parseErrorBody([]byte(e.RawJSON()))
		return m.source.NewError(cmp.Or(kind, llm.Unavailable), errors.New(text))
	}
	if isDecodeError(err) {
		return m.source.NewError(llm.Malformed, err)
	}
	return m.source.NewConnectionError(ctx, cmp.Or(err, errors.New("the stream ended before the message did")))
}

// isDecodeError reports whether err means that a text is not JSON of the expected form.
func isDecodeError(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, form := errors.AsType[*json.UnmarshalTypeError](err)
	return syntax || form
}

// maxLogText limits how much of the provider's error text is logged, in bytes.
const maxLogText = 4 << 10

// parseErrorBody returns the kind and the text of the error in the body of a response. The kind is empty if the
// body does not tell it.
func parseErrorBody(body []byte) (llm.Kind, string) {
	var c struct {
		Error struct {
			Type    sdk.ErrorType `json:"type"`
			Message string        `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &c) // fields that cannot be decoded stay empty
	text := cmp.Or(c.Error.Message, strings.TrimSpace(string(body)))
	return kindFromErrorType(c.Error.Type, c.Error.Message), conversation.Truncate(text, maxLogText)
}

// kindFromErrorType returns the kind of error for an error type of the provider. It is empty if only the status
// tells the kind.
func kindFromErrorType(sort sdk.ErrorType, text string) llm.Kind {
	switch sort {
	case sdk.ErrorTypeAuthenticationError:
		return llm.Authentication
	case sdk.ErrorTypePermissionError:
		return llm.Permission
	case sdk.ErrorTypeNotFoundError:
		return llm.NotFound
	case sdk.ErrorTypeRateLimitError:
		return llm.RateLimit
	case sdk.ErrorTypeBillingError:
		return llm.Credits
	case sdk.ErrorTypeOverloadedError, sdk.ErrorTypeAPIError, sdk.ErrorTypeTimeoutError:
		return llm.Unavailable
	case sdk.ErrorTypeInvalidRequestError: // covers several kinds, which only the message distinguishes
		switch {
		case strings.Contains(text, "prompt is too long"), strings.Contains(text, "context limit"):
			return llm.ContextLength
		case strings.Contains(text, "credit balance"):
			return llm.Credits
		}
		return llm.BadRequest
	}
	return ""
}
