// Package retry repeats work that failed: calls between the services of the mesh with Do, and the steps
// and jobs of users with a Policy.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// The pauses of a Backoff: exponential with jitter.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Backoff is the growing, jittered pause between tries. It is for one goroutine.
type Backoff struct{ backoff *backoff.ExponentialBackOff }

// NewBackoff returns a backoff that begins with 50 ms and grows to 2 s.
func NewBackoff() *Backoff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = firstPause, maxPause
	return &Backoff{b}
}

// Wait pauses, each time longer than before. It fails with ctx's error when ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.backoff.NextBackOff()) }

// Reset begins again with the shortest pause.
func (b *Backoff) Reset() { b.backoff.Reset() }

// Sleep pauses for d. It fails with ctx's error when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Do calls op until it succeeds, fails with another mode than system_network or system_timeout, or
// ctx ends; then it returns the last error. op must be safe to repeat, because a call that failed with
// one of these modes may have taken effect.
func Do[T any](ctx context.Context, op func(context.Context) (T, error)) (T, error) {
	pauses := NewBackoff()
	for {
		result, err := op(ctx)
		if err == nil || !failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) {
			return result, err
		}
		if pauses.Wait(ctx) != nil {
			return result, err // says more than "context deadline exceeded"
		}
	}
}
