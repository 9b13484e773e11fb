package llm

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/breaker"
)

// Guarded returns m behind a circuit breaker. The breaker opens for 10 s after three requests in a row failed before their
// first text, retries included (contract OC-34). Rate limits, outages, lost connections, unresponsive providers and
// unreadable answers count. Other errors do not, because they say what is wrong and cost little. A success resets the
// count.
//
// While the breaker is open, requests fail at once with resource_circuit, an error of kind Circuit and the fact
// retry_after, and a Failover tries its next model. After that, one request is the trial.
//
// Guarded is the outermost wrapper, around Timed and Hedged.
func Guarded(m Model) Model { return guarded{m, breaker.New(nil)} }

type guarded struct {
	Model
	circuit *breaker.Breaker
}

// ContextSize implements ContextSizer.
func (g guarded) ContextSize() int64 { return ContextSizeOf(g.Model) }

// Generate implements Model.
func (g guarded) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		done, left := g.circuit.Try()
		if done == nil {
			yield(Delta{}, g.newBreakerOpenError(left))
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
		for d, err := range g.Model.Generate(ctx, req) {
			switch {
			case told:
			case err != nil && ctx.Err() == nil && KindOf(err).isOutage():
				verdict = breaker.Failure
			case err == nil && d.hasContent():
				verdict = breaker.Success
				tell() // report at the first content, so that other requests need not wait for the end
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// newBreakerOpenError returns the error for a request while the breaker is open. left is the time until the next
// trial. During a trial it is unknown, and the error says 1 s.
func (g guarded) newBreakerOpenError(left time.Duration) error {
	provider, _, _ := strings.Cut(g.Name(), "/")
	return Source{Provider: provider, Model: g.Name()}.newFailure(&Error{
		Provider: provider, Kind: CircuitOpen, RetryAfter: max(left, time.Second),
		Cause: fmt.Errorf("%d requests in a row failed", breaker.MaxFailures),
	})
}
