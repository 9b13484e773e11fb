package llm

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/breaker"
)

// Guarded is the model, left alone for 10 s when its provider failed three requests in a row
// before their first word (contract OC-34): with a rate limit, an outage, a connection that
// broke or silence, or an answer that cannot be read, retries included. Until then requests
// fail at once with resource_circuit, an error of kind Circuit and the fact retry_after; a chain
// goes on with the next one: see Failover. After that one request is the trial. Other kinds of
// errors count for nothing: they say what is wrong, and asking costs little. What works begins
// the count anew.
//
// It goes outermost, around Timed and Hedged.
func Guarded(m Model) Model { return guarded{m, breaker.New(nil)} }

type guarded struct {
	Model
	circuit *breaker.Breaker
}

// ContextSize implements ContextSize.
func (m guarded) ContextSize() int64 { return ContextOf(m.Model) }

// Generate implements Model.
func (m guarded) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		done, left := m.circuit.Try()
		if done == nil {
			yield(Delta{}, m.alone(left))
			return
		}
		verdict, told := breaker.Inconclusive, false
		tell := func() {
			if !told {
				told = true
				done(verdict)
			}
		}
		defer tell()
		for d, err := range m.Model.Generate(ctx, req) {
			switch {
			case told:
			case err != nil && ctx.Err() == nil && KindOf(err).down():
				verdict = breaker.Failure
			case err == nil && d.says():
				verdict = breaker.Success
				tell() // at the first word: others need not wait for the last
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// alone is the error of a model that is left alone. During the trial nobody knows for how long.
func (m guarded) alone(left time.Duration) error {
	provider, _, _ := strings.Cut(m.Name(), "/")
	return Source{Provider: provider, Model: m.Name()}.failure(&Error{
		Provider: provider, Kind: Circuit, RetryAfter: max(left, time.Second),
		Cause: fmt.Errorf("%d requests in a row failed", breaker.MaxFailures),
	})
}
