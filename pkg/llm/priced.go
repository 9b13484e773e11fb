package llm

import (
	"context"
	"iter"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// ContextSizer is implemented by models that know their context size.
type ContextSizer interface {
	ContextSize() int64 // in tokens (0 if unknown)
}

// ContextSizeOf returns the context size of a model in tokens. It is DefaultContextSize if the model does not know
// its own (CO-21).
func ContextSizeOf(m Model) int64 {
	if s, ok := m.(ContextSizer); ok && s.ContextSize() > 0 {
		return s.ContextSize()
	}
	return DefaultContextSize
}

// Priced returns m with the costs and the context size in the table entry of its name. All costs are computed
// here, except a cost that the model reports itself. Adapters wrap their models with Priced.
func Priced(m Model, t Table) Model {
	e, ok := t.Find(m.Name())
	if !ok {
		return m
	}
	return priced{m, e}
}

type priced struct {
	Model
	entry ModelEntry
}

// ContextSize implements ContextSizer.
func (p priced) ContextSize() int64 {
	if s, ok := p.Model.(ContextSizer); ok && s.ContextSize() > 0 {
		return s.ContextSize()
	}
	return p.entry.ContextSize
}

// Generate implements Model. A provider may report its usage in several parts. Each delta gets the amount that its
// part adds to the total cost, so that the sum is rounded only once.
func (p priced) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		var told execution.Usage
		for d, err := range p.Model.Generate(ctx, req) {
			if d.Usage != (execution.Usage{}) && d.Usage.CostMicros == 0 {
				before := p.entry.Cost(told)
				told = told.Add(d.Usage)
				d.Usage.CostMicros = p.entry.Cost(told) - before
			}
			if !yield(d, err) {
				return
			}
		}
	}
}
