package llm

import (
	"context"
	"iter"
	"strings"
	"time"
)

// Timed is the model, given up when it has said nothing for a time, in which it may be asked
// again (see Retried). It fails then with an error of kind Connection, so that a chain goes on
// with the next one: see Failover. How long an answer takes that has begun is not its concern.
// With a time of 0 or less it is the model itself.
func Timed(m Model, first time.Duration) Model {
	if first <= 0 {
		return m
	}
	return timed{m, first}
}

type timed struct {
	Model
	first time.Duration
}

// ContextSize implements ContextSize.
func (m timed) ContextSize() int64 { return ContextOf(m.Model) }

// Generate implements Model.
func (m timed) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		within, give := context.WithCancel(ctx)
		defer give()
		timer := time.AfterFunc(m.first, give)
		defer timer.Stop()
		begun := false
		for d, err := range m.Model.Generate(within, req) {
			if !begun && (err != nil || d.says()) {
				if begun = timer.Stop(); !begun {
					break // too late, whatever it is
				}
			}
			if !yield(d, err) {
				return
			}
		}
		if !begun && !timer.Stop() {
			yield(Delta{}, m.silent(ctx))
		}
	}
}

// silent is the error of a model that took too long, or the context's when that has ended.
func (m timed) silent(ctx context.Context) error {
	provider, _, _ := strings.Cut(m.Name(), "/")
	return Source{Provider: provider, Model: m.Name()}.Broken(ctx, late("the first word", m.first))
}
