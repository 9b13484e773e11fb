package llm

import (
	"context"
	"iter"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// ContextSize is implemented by models that know the size of their context.
type ContextSize interface {
	ContextSize() int64 // in tokens (0 if unknown)
}

// ContextOf returns the context of a model in tokens: its ContextSize, or DefaultContext if it has none (CO-21).
func ContextOf(m Model) int64 {
	if s, ok := m.(ContextSize); ok && s.ContextSize() > 0 {
		return s.ContextSize()
	}
	return DefaultContext
}

// Priced returns m with costs and context from the table entry of its name. All costs are computed here. A cost that the
// model reports itself stays. Adapters return their models like this.
func Priced(m Model, t Table) Model {
	e, ok := t.Find(m.Name())
	if !ok {
		return m
	}
	return priced{m, e}
}

type priced struct {
	Model
	entry Entry
}

// ContextSize implements ContextSize.
func (m priced) ContextSize() int64 {
	if s, ok := m.Model.(ContextSize); ok && s.ContextSize() > 0 {
		return s.ContextSize()
	}
	return m.entry.Context
}

// Generate implements Model. A provider may report its usage in pieces. Each delta gets the difference that its piece makes
// to the total cost, so that the sum is rounded only once.
func (m priced) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		var told execution.Usage
		for d, err := range m.Model.Generate(ctx, req) {
			if d.Usage != (execution.Usage{}) && d.Usage.CostMicros == 0 {
				before := m.entry.Cost(told)
				told = told.Add(d.Usage)
				d.Usage.CostMicros = m.entry.Cost(told) - before
			}
			if !yield(d, err) {
				return
			}
		}
	}
}
