package failure

import (
	"errors"
	"time"
)

// factRetryAfter is the name of the fact that holds the delay before a retry, in the format of time.Duration.
const factRetryAfter = "retry_after"

// WithRetryAfter returns a copy of e that asks the caller to wait for d before a retry.
func (e *Error) WithRetryAfter(d time.Duration) *Error { return e.With(factRetryAfter, d.String()) }

// RetryAfter returns the delay that err requests. It returns false if err requests none.
func RetryAfter(err error) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return 0, false
	}
	after, parseErr := time.ParseDuration(e.Facts[factRetryAfter])
	return after, parseErr == nil && after >= 0
}
