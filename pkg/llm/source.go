package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Source identifies the provider and the model in the errors of an adapter. All adapters create their errors with
// it, so that errors of one kind have the same text and the same facts for all providers (CO-13). It is immutable,
// and safe for concurrent use.
type Source struct {
	Provider    string       // the prefix in the model's name, such as "openai"
	Model       string       // the full name
	KeyVariable string       // environment variable that the key comes from
	Key         secret.Value // key that is removed from all texts of the provider
}

// NewMissingKeyError returns the error for a model that cannot be opened because its key is not set (CO-10).
func (s Source) NewMissingKeyError() error {
	return failure.Newf(failure.UserInvalidInput, "llm.Open",
		"model %s needs a key: set %s in the environment of the worker", s.Model, s.KeyVariable).
		With("kind", string(Authentication)).With("provider", s.Provider).With("variable", s.KeyVariable)
}

// NewError returns an error of the given kind, for problems without an HTTP status. The cause holds the provider's
// own text, which is only logged.
func (s Source) NewError(kind Kind, cause error) error {
	return s.newFailure(&Error{Provider: s.Provider, Kind: kind, Cause: cause})
}

// NewResponseError returns the error for a response with status 400 or higher. The status decides the kind, unless
// the adapter passes a more precise one from the body. text is the provider's own text, at most a few KiB long. It
// is only logged.
func (s Source) NewResponseError(status int, header http.Header, kind Kind, text string) error {
	return s.newFailure(&Error{
		Provider: s.Provider, Kind: cmp.Or(kind, kindFromStatus(status)), Status: status,
		RetryAfter: parseRetryAfter(header, time.Now()), Cause: errors.New(cmp.Or(text, http.StatusText(status))),
	})
}

// NewConnectionError returns the error for a connection that failed, was cut or became unresponsive. If ctx has
// ended, it returns the error of ctx, because the caller gave up and not the provider.
func (s Source) NewConnectionError(ctx context.Context, cause error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if KindOf(cause) != "" {
		return cause // already has a kind
	}
	return s.NewError(Connection, cause)
}

// newFailure creates the failure.Error, which has the same form for all providers.
func (s Source) newFailure(e *Error) error {
	if e.Cause != nil {
		e.Cause = s.redactKey(e.Cause)
	}
	f := failure.New(kindProperties[e.Kind].mode, "llm.Generate", s.message(e)).
		With("kind", string(e.Kind)).With("provider", e.Provider).Because(e)
	if e.RetryAfter > 0 {
		f = f.With("retry_after", e.RetryAfter.String())
	}
	return f
}

// redactKey removes the key from the text of a cause, because some providers quote a rejected key. It returns a
// cause without the key unchanged.
func (s Source) redactKey(cause error) error {
	key := s.Key.Reveal()
	if key == "" || !strings.Contains(cause.Error(), key) {
		return cause
	}
	return errors.New(strings.ReplaceAll(cause.Error(), key, secret.Redacted))
}

// message returns one sentence for the caller that says what is wrong and what to do.
func (s Source) message(e *Error) string {
	said := ""
	switch e.Kind {
	case Authentication:
		said = "%s rejected the key for model %s" + s.keyHint()
	case Permission:
		said = "%s does not allow this key to use model %s; give the key access, or use another model"
	case RateLimit:
		said = "%s gets too many requests for model %s; try again" + formatWait(e.RetryAfter)
	case Credits:
		said = "%s has no credits left for model %s; add some at the provider, or use another model"
	case PaidModel:
		said = "%s gives model %s to paid accounts only; upgrade, or use another model"
	case BadRequest:
		said = "%s rejected the request to model %s; see the log for its message"
	case ContextLength:
		said = "%s: the conversation is longer than model %s can read; begin a new session, compact this one, or use a model with a larger context"
	case NotFound:
		said = "%s has no model %s, or does not allow this key to use it; check the name"
	case Connection:
		said = "%s cannot be reached or does not respond, for model %s; try again, or check the network of the worker"
	case Unavailable:
		said = "%s is overloaded or has failed, model %s; try again" + formatWait(e.RetryAfter)
	case Malformed:
		said = "%s sent an unreadable answer for model %s; try again, or check that the server at its address uses this provider's format"
	case ContentFiltered:
		said = "%s stopped the answer of model %s with its content filter; rephrase the request"
	case CircuitOpen:
		said = "%s failed the last requests to model %s, so it is not called for now; try again" + formatWait(e.RetryAfter)
	}
	return fmt.Sprintf(said, s.Provider, s.Model)
}

func (s Source) keyHint() string {
	if s.KeyVariable == "" {
		return "; check it"
	}
	return "; check " + s.KeyVariable
}

func formatWait(d time.Duration) string {
	if d <= 0 {
		return " in a moment"
	}
	return fmt.Sprintf(" in %s", d.Round(time.Second))
}

func kindFromStatus(status int) Kind {
	switch status {
	case http.StatusUnauthorized:
		return Authentication
	case http.StatusPaymentRequired:
		return Credits
	case http.StatusForbidden:
		return Permission
	case http.StatusNotFound, http.StatusGone:
		return NotFound
	case http.StatusRequestEntityTooLarge:
		return ContextLength
	case http.StatusTooManyRequests:
		return RateLimit
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly:
		return Unavailable
	}
	if status >= 500 {
		return Unavailable
	}
	return BadRequest
}

// parseRetryAfter returns the delay that the provider requests, as milliseconds, seconds or a date. It returns 0
// if the value is invalid or in the past.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return toDuration(ms, time.Millisecond)
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return toDuration(s, time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// toDuration returns n units, but at most a year (0 if n is not a positive number).
func toDuration(n float64, unit time.Duration) time.Duration {
	const year = 365 * 24 * time.Hour
	if !(n > 0) {
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(year)))
}
