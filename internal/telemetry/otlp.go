package telemetry

import (
	"context"
	"errors"
	"net/url"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
)

// checkEndpoint refuses what the exporter would take without a word, and never send to. The
// error does not quote it: a URL may have a password.
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

// tellEvery is how often it is told that spans are lost.
const tellEvery = 5 * time.Minute

// told is an exporter whose failures are in the log, now and then. The library would give them to
// a handler that is global. It exports one batch at a time.
type told struct {
	sdktrace.SpanExporter
	log  *zap.Logger
	last time.Time // when a failure was told
	lost int       // spans since then
}

// ExportSpans implements sdktrace.SpanExporter. What failed is told here, and to nobody else.
func (e *told) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.lost += len(spans)
	if now := time.Now(); e.last.IsZero() || now.Sub(e.last) >= tellEvery {
		e.log.Warn("spans are lost: the collector of --otlp-endpoint does not take them", zap.Int("spans", e.lost), zap.Error(err))
		e.last, e.lost = now, 0
	}
	return nil
}
