package failure

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The pace of Retry: exponential with jitter.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// factRetryAfter is how long to wait before the same call may succeed, as Go writes a
// duration.
const factRetryAfter = "retry_after"

// After returns a copy of e that says when to ask again.
func (e *Error) After(d time.Duration) *Error { return e.With(factRetryAfter, d.String()) }

// RetryAfter is when err says to ask again; false when it does not.
func RetryAfter(err error) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return 0, false
	}
	after, parseErr := time.ParseDuration(e.Facts[factRetryAfter])
	return after, parseErr == nil && after >= 0
}

// Pace is the growing, jittered pause between tries. One goroutine uses it.
type Pace struct{ backoff *backoff.ExponentialBackOff }

// NewPace returns a pace that begins with 50 ms and grows to 2 s.
func NewPace() *Pace {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = firstPause, maxPause
	return &Pace{b}
}

// Wait pauses; each time longer than before. It fails when ctx ends first.
func (p *Pace) Wait(ctx context.Context) error { return Pause(ctx, p.backoff.NextBackOff()) }

// Pause waits for a time. It fails with ctx's error when that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reset begins again with the shortest pause.
func (p *Pace) Reset() { p.backoff.Reset() }

// Retry calls op until it succeeds, fails with another mode than system_network and
// system_timeout, or ctx ends; then it returns the last error. op must be safe to repeat:
// after either mode the call may have taken effect.
func Retry[T any](ctx context.Context, op func(context.Context) (T, error)) (T, error) {
	pace := NewPace()
	for {
		result, err := op(ctx)
		if err == nil || !Is(err, SystemNetwork, SystemTimeout) {
			return result, err
		}
		if pace.Wait(ctx) != nil {
			return result, err // says more than "context deadline exceeded"
		}
	}
}
