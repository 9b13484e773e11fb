package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Failover is a model made of others, of which the first that answers does: when one fails
// before it said anything, and another may do better (see Kind.Elsewhere), the next is
// asked; one that is left alone is passed over (see Guarded). The name is the caller's;
// Delta.Model says which one answers, and its usage is what all of them told. When all have
// failed, it fails like the last, and the log has each. A chain of no models, or of one that
// has the chain's name, is an error.
func Failover(name string, models ...Model) (Model, error) {
	if len(models) == 0 {
		return nil, failure.Newf(failure.UserInvalidInput, "llm.Failover", "model %q: a chain needs at least one model", name)
	}
	for _, m := range models {
		if m.Name() == name {
			return nil, failure.Newf(failure.UserInvalidInput, "llm.Failover", "model %q: one of the chain has the chain's name; name the chain otherwise", name)
		}
	}
	return failover{name, slices.Clone(models)}, nil
}

type failover struct {
	name   string
	models []Model
}

// Name implements Model.
func (c failover) Name() string { return c.name }

// ContextSize returns the smallest context of the models, because any of them may have to answer.
func (c failover) ContextSize() int64 {
	least := ContextOf(c.models[0])
	for _, m := range c.models[1:] {
		least = min(least, ContextOf(m))
	}
	return least
}

// Generate implements Model.
func (c failover) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		var failed []error
		for _, m := range c.models {
			said, err := relay(signed(ctx, m, req), yield)
			if err == nil {
				return
			}
			failed = append(failed, fmt.Errorf("%s: %w", m.Name(), err))
			if said || ctx.Err() != nil || !KindOf(err).Elsewhere() {
				break
			}
		}
		yield(Delta{}, joined(failed))
	}
}

// joined is the last of the errors, with the others in its cause.
func joined(failed []error) error {
	last := failed[len(failed)-1]
	e, ok := errors.AsType[*failure.Error](last)
	if !ok || len(failed) == 1 {
		return errors.Unwrap(last)
	}
	slices.Reverse(failed) // so that errors.As finds the last error first
	return e.Because(errors.Join(failed...))
}

// signed is what a model says, with its name on the first thing it says.
func signed(ctx context.Context, m Model, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		said := false
		for d, err := range m.Generate(ctx, req) {
			if !said && err == nil && d.says() {
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
