// Package spans starts the OpenTelemetry spans of a step: its agent, its iterations, its model calls and its
// tool calls.
package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Start starts a child of the span in ctx and returns a function that ends it (AD-34). It does nothing if the span
// in ctx is not recorded. Names and attributes follow the OpenTelemetry conventions for generative AI. They must
// never contain text of a user or a model.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error, ...attribute.KeyValue)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(error, ...attribute.KeyValue) {}
	}
	ctx, span := parent.TracerProvider().Tracer("troupe/agent").Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, func(err error, more ...attribute.KeyValue) {
		span.SetAttributes(more...)
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
