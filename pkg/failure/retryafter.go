package failure

import (
	"errors"
	"time"
)

// factRetryAfter is the delay before the same call may succeed, as time.Duration prints it.
const factRetryAfter = "retry_after"

// WithRetryAfter returns a copy of e that asks the caller to wait for d before the next try.
func (e *Error) WithRetryAfter(d time.Duration) *Error { return e.With(factRetryAfter, d.String()) }

// RetryAfter returns the delay that err asks for. It is false when err asks for none.
func RetryAfter(err error) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return 0, false
	}
	after, parseErr := time.ParseDuration(e.Facts[factRetryAfter])
	return after, parseErr == nil && after >= 0
}
