package hook

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Span begins a span below that of ctx, if that is recorded, and returns what ends it
// (AD-34). Names and attributes are those of OpenTelemetry for generative AI; nothing that
// was said goes into them.
func Span(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error, ...attribute.KeyValue)) {
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
