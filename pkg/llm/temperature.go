package llm

import (
	"context"
	"iter"
)

// MaxTemperature is the highest temperature that any provider accepts.
const MaxTemperature = 2

// WithTemperature returns a model that sets the temperature of requests that have none. The temperature must be
// between 0 and MaxTemperature. A higher one makes the choice of words more random. Adapters do not send it to
// models with a fixed temperature (see ModelEntry.FixedTemperature).
func WithTemperature(m Model, temperature float64) Model { return withTemperature{m, temperature} }

type withTemperature struct {
	Model
	temperature float64
}

// ContextSize implements ContextSizer.
func (w withTemperature) ContextSize() int64 { return ContextSizeOf(w.Model) }

// Generate implements Model.
func (w withTemperature) Generate(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	if req.Temperature == nil {
		req.Temperature = &w.temperature
	}
	return w.Model.Generate(ctx, req)
}
