package llm

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry configures the retries of a model. Zero values mean the defaults.
type Retry struct {
	Limit   int           // requests after the first (0 means 2, negative means none; CO-13)
	Pause   time.Duration // before the first retry, growing and jittered (0 means 500 ms)
	Longest time.Duration // longest wait that a provider may ask for; a longer one ends the retries (0 means 30 s)
}

func (r Retry) orDefault() Retry {
	return Retry{
		Limit:   max(0, cmp.Or(r.Limit, 2)),
		Pause:   cmp.Or(r.Pause, 500*time.Millisecond),
		Longest: cmp.Or(r.Longest, 30*time.Second),
	}
}

// Retried returns m with retries of errors that may pass (see Kind.Again). It waits as long as the provider asks for, if it
// does. It returns the last error if a part of the answer was already yielded, or if ctx would end before the pause.
// Adapters return their models like this, so callers need no retries of their own.
func Retried(m Model, r Retry) Model { return retried{m, r.orDefault()} }

type retried struct {
	Model
	retry Retry
}

// ContextSize implements ContextSize.
func (m retried) ContextSize() int64 { return ContextOf(m.Model) }

// Generate implements Model.
func (m retried) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		pace := backoff.NewExponentialBackOff()
		pace.InitialInterval, pace.MaxInterval = m.retry.Pause, m.retry.Longest
		for left := m.retry.Limit; ; left-- {
			said, err := relay(m.Model.Generate(ctx, req), yield)
			if err == nil {
				return
			}
			if said || left == 0 || !m.pause(ctx, err, pace) {
				yield(Delta{}, err)
				return
			}
		}
	}
}

// pause waits before the next try, and reports whether there may be one.
func (m retried) pause(ctx context.Context, err error, pace *backoff.ExponentialBackOff) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Kind.Again() || e.RetryAfter > m.retry.Longest {
		return false
	}
	wait := max(e.RetryAfter, pace.NextBackOff())
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// relay yields the deltas of a model until it fails, and reports whether they had content. Deltas with usage only
// may be repeated. If the consumer stops, there is no error.
func relay(deltas iter.Seq2[Delta, error], yield func(Delta, error) bool) (said bool, err error) {
	for d, err := range deltas {
		if err != nil {
			return said, err
		}
		said = said || d.says()
		if !yield(d, nil) {
			return said, nil
		}
	}
	return said, nil
}
