package llm

import (
	"context"
	"iter"
)

// MaxTemperature is the highest temperature that any provider takes.
const MaxTemperature = 2

// Tempered returns a model that is asked with a temperature of 0 to MaxTemperature, unless the request has one. A
// higher temperature means a freer choice of words. A model whose temperature is known to be fixed is asked without
// one (see Entry.Fixed).
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
