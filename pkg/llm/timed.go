package llm

import (
	"context"
	"iter"
	"strings"
	"time"
)

// Timed returns m with a timeout for its first content, retries included (see Retried). After the timeout it fails
// with an error of kind Connection, so that a Failover tries its next model. It does not limit an answer that has
// begun. If first is 0 or negative, Timed returns m.
func Timed(m Model, first time.Duration) Model {
	if first <= 0 {
		return m
	}
	return timed{m, first}
}

type timed struct {
	Model
	timeout time.Duration
}

// ContextSize implements ContextSizer.
func (t timed) ContextSize() int64 { return ContextSizeOf(t.Model) }

// Generate implements Model.
func (t timed) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		within, give := context.WithCancel(ctx)
		defer give()
		timer := time.AfterFunc(t.timeout, give)
		defer timer.Stop()
		begun := false
		for d, err := range t.Model.Generate(within, req) {
			if !begun && (err != nil || d.hasContent()) {
				if begun = timer.Stop(); !begun {
					break // the timeout has expired, so the delta comes too late
				}
			}
			if !yield(d, err) {
				return
			}
		}
		if !begun && !timer.Stop() {
			yield(Delta{}, t.timeoutError(ctx))
		}
	}
}

// timeoutError returns the error for a model that took too long, or the error of ctx if ctx has ended.
func (t timed) timeoutError(ctx context.Context) error {
	provider, _, _ := strings.Cut(t.Name(), "/")
	return Source{Provider: provider, Model: t.Name()}.NewConnectionError(ctx, newTooSlowError("the first word", t.timeout))
}
