package llm

import (
	"context"
	"iter"
)

// MaxTemperature is the highest temperature that any provider takes.
const MaxTemperature = 2

// WithTemperature returns m with a temperature for requests that have none. It must be between 0 and MaxTemperature; a
// higher one gives a freer choice of words. Models with a fixed temperature get none (see Entry.Fixed).
func WithTemperature(m Model, temperature float64) Model { return withTemperature{m, temperature} }

type withTemperature struct {
	Model
	temperature float64
}

// ContextSize implements ContextSize.
func (m withTemperature) ContextSize() int64 { return ContextOf(m.Model) }

// Generate implements Model.
func (m withTemperature) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	if req.Temperature == nil {
		req.Temperature = &m.temperature
	}
	return m.Model.Generate(ctx, req)
}
