package llm

import (
	"context"
	"iter"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// ContextSize is what a model has that knows how much it can read.
type ContextSize interface {
	ContextSize() int64 // in tokens; 0: not known
}

// ContextOf is how many tokens a model can read: what it says itself, else DefaultContext
// (CO-21).
func ContextOf(m Model) int64 {
	if s, ok := m.(ContextSize); ok && s.ContextSize() > 0 {
		return s.ContextSize()
	}
	return DefaultContext
}

// Priced is the model, with what its answers cost and how much it can read, as the table
// knows its name. It is the one place that computes costs. A cost that the model tells
// itself stays. Adapters return their models so.
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

// Generate implements Model. A provider may tell its usage in pieces: each delta has what
// its piece adds to the cost of all before it, so that their sum is rounded once.
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
