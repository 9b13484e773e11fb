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
	Limit   int           // maximum number of retries (0 means 2, negative means none; CO-13)
	Pause   time.Duration // delay before the first retry; later delays grow, and all are jittered (0 means 500 ms)
	MaxWait time.Duration // longest delay that a provider may request; a longer one ends the retries (0 means 30 s)
}

func (r Retry) withDefaults() Retry {
	return Retry{
		Limit:   max(0, cmp.Or(r.Limit, 2)),
		Pause:   cmp.Or(r.Pause, 500*time.Millisecond),
		MaxWait: cmp.Or(r.MaxWait, 30*time.Second),
	}
}

// Retried returns m with retries of temporary errors (see Kind.Retryable). It waits for the delay that the
// provider requests, if any. It returns the last error without a retry if a text or a call was already yielded, or
// if ctx would end during the pause. A repeated request may yield its thoughts again. Adapters wrap their models with Retried, so callers need no
// retries of their own.
func Retried(m Model, r Retry) Model { return retried{m, r.withDefaults()} }

type retried struct {
	Model
	retry Retry
}

// ContextSize implements ContextSizer.
func (r retried) ContextSize() int64 { return ContextSizeOf(r.Model) }

// Generate implements Model.
func (r retried) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		pace := backoff.NewExponentialBackOff()
		pace.InitialInterval, pace.MaxInterval = r.retry.Pause, r.retry.MaxWait
		for left := r.retry.Limit; ; left-- {
			said, err := relayDeltas(r.Model.Generate(ctx, req), yield)
			if err == nil {
				return
			}
			if said || left == 0 || !r.waitToRetry(ctx, err, pace) {
				yield(Delta{}, err)
				return
			}
		}
	}
}

// waitToRetry waits before the next try. It returns false if there must be no retry.
func (r retried) waitToRetry(ctx context.Context, err error, pace *backoff.ExponentialBackOff) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Kind.Retryable() || e.RetryAfter > r.retry.MaxWait {
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

// relayDeltas yields the deltas of a model until it fails, and reports whether one of them had a part of the answer. A
// request whose deltas had only usage and thoughts may be repeated. If the consumer stops, relayDeltas returns no error.
func relayDeltas(deltas iter.Seq2[Delta, error], yield func(Delta, error) bool) (said bool, err error) {
	for d, err := range deltas {
		if err != nil {
			return said, err
		}
		said = said || d.Text != "" || len(d.ToolCalls) > 0 || d.Finish != ""
		if !yield(d, nil) {
			return said, nil
		}
	}
	return said, nil
}
