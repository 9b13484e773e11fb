// Package retry retries failed work: Do retries calls between the services of the mesh, and a Policy retries the
// steps and jobs of users.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/troupe-dev/troupe/internal/jitter"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// These are the first and the longest pause of a Backoff.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Backoff produces growing pauses with jitter. It is not safe for concurrent use.
type Backoff struct{ backoff *backoff.ExponentialBackOff }

// NewBackoff returns a backoff whose pauses grow from 50 ms to 2 s.
func NewBackoff() *Backoff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = firstPause, maxPause
	b.RandomizationFactor = 0 // Wait varies the pauses
	return &Backoff{b}
}

// Wait pauses, longer each time and up to 50 % more or less. It returns the context's error if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error {
	pause := b.backoff.NextBackOff()
	return Sleep(ctx, pause/2+jitter.Below(pause+1))
}

// Reset makes the next pause the shortest one again.
func (b *Backoff) Reset() { b.backoff.Reset() }

// Sleep pauses for d. It returns the context's error if ctx ends first.
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

// Do calls op until it succeeds, fails with a mode other than system_network or system_timeout, or ctx ends. It
// returns the last result and error. op must be safe to repeat, because a call that failed with one of these modes
// may have taken effect.
func Do[T any](ctx context.Context, op func(context.Context) (T, error)) (T, error) {
	pauses := NewBackoff()
	for {
		result, err := op(ctx)
		if err == nil || !failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) {
			return result, err
		}
		if pauses.Wait(ctx) != nil {
			return result, err // more informative than "context deadline exceeded"
		}
	}
}
