package llm

import (
	"context"
	"iter"
)

// MaxTemperature is the highest temperature that any provider takes.
const MaxTemperature = 2

// Tempered returns m with a temperature for requests that have none. It must be between 0 and MaxTemperature; a
// higher one gives a freer choice of words. Models with a fixed temperature get none (see Entry.Fixed).
func Tempered(m Model, temperature float64) Model { return tempered{m, temperature} }

type tempered struct {
	Model
	temperature float64
}

// ContextSize implements ContextSize.
func (m tempered) ContextSize() int64 { return ContextOf(m.Model) }

// Generate implements Model.
func (m tempered) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	if req.Temperature == nil {
		req.Temperature = &m.temperature
	}
	return m.Model.Generate(ctx, req)
}
