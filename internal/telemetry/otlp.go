package telemetry

import (
	"context"
	"errors"
	"net/url"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
)

// checkEndpoint returns an error for an endpoint that the exporter would accept but could never reach. The error
// does not quote the URL, which may contain a password.
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("--otlp-endpoint: want a URL of http or https with a host, such as http://collector:4317")
	}
	return nil
}

// lossLogInterval is the shortest time between two log lines about lost spans.
const lossLogInterval = 5 * time.Minute

// loggingExporter logs failed exports, at most once per interval. Without it the library would report them to a
// global handler. It exports one batch at a time.
type loggingExporter struct {
	sdktrace.SpanExporter
	log        *zap.Logger
	lastLogged time.Time // when a failure was last logged
	lostSpans  int       // number of spans lost since then
}

// ExportSpans implements sdktrace.SpanExporter. It logs a failure and returns nil.
func (e *loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.lostSpans += len(spans)
	if now := time.Now(); e.lastLogged.IsZero() || now.Sub(e.lastLogged) >= lossLogInterval {
		e.log.Warn("spans are lost, because the export to the collector failed; check --otlp-endpoint", zap.Int("spans", e.lostSpans), zap.Error(err))
		e.lastLogged, e.lostSpans = now, 0
	}
	return nil
}
