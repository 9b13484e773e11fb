package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Failover returns a model that tries several models in order. If one fails before it has sent content, and
// another model may succeed (see Kind.AllowsFailover), Failover tries the next one. A model whose circuit breaker
// is open fails at once (see Guarded). Delta.Model says which model answers. The usage is the sum over all models.
// If all fail, Failover returns the last error, whose cause contains the others. It is an error if there are no
// models, or if one of them has the name of the chain.
func Failover(name string, models ...Model) (Model, error) {
	if len(models) == 0 {
		return nil, failure.Newf(failure.UserInvalidInput, "llm.Failover", "model %q: a chain needs at least one model", name)
	}
	for _, m := range models {
		if m.Name() == name {
			return nil, failure.Newf(failure.UserInvalidInput, "llm.Failover", "model %q: one of the chain has the chain's name; name the chain otherwise",
				name)
		}
	}
	return failover{name, slices.Clone(models)}, nil
}

type failover struct {
	name   string
	models []Model
}

// Name implements Model.
func (f failover) Name() string { return f.name }

// ContextSize returns the smallest context size of the models, because any of them may have to answer.
func (f failover) ContextSize() int64 {
	least := ContextSizeOf(f.models[0])
	for _, m := range f.models[1:] {
		least = min(least, ContextSizeOf(m))
	}
	return least
}

// Generate implements Model.
func (f failover) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		var failed []error
		for _, m := range f.models {
			said, err := relayDeltas(addModelName(ctx, m, req), yield)
			if err == nil {
				return
			}
			failed = append(failed, fmt.Errorf("%s: %w", m.Name(), err))
			if said || ctx.Err() != nil || !KindOf(err).AllowsFailover() {
				break
			}
		}
		yield(Delta{}, joinErrors(failed))
	}
}

// joinErrors returns the last error with the other errors in its cause.
func joinErrors(failed []error) error {
	last := failed[len(failed)-1]
	e, ok := errors.AsType[*failure.Error](last)
	if !ok || len(failed) == 1 {
		return errors.Unwrap(last)
	}
	slices.Reverse(failed) // so that errors.As finds the last error first
	return e.Because(errors.Join(failed...))
}

// addModelName yields the deltas of a model, and sets the model's name in the first one that has content.
func addModelName(ctx context.Context, m Model, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		said := false
		for d, err := range m.Generate(ctx, req) {
			if !said && err == nil && d.hasContent() {
				said = true
				if d.Model == "" {
					d.Model = m.Name()
				}
			}
			if !yield(d, err) {
				return
			}
		}
	}
}
