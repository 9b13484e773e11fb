package telemetry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestNew_RejectsAnInvalidEndpoint(t *testing.T) {
	for _, wrong := range []string{"foo", "collector:4317", "ftp://collector", "http://", "http://:4317", "://"} {
		_, err := New(t.Context(), "program", Config{LogLevel: "error", OTLPEndpoint: wrong})
		require.ErrorContains(t, err, "--otlp-endpoint: want a URL of http or https with a host", wrong)
	}
	for _, right := range []string{"", "http://collector:4317", "https://user:pass@collector"} {
		require.NoError(t, checkEndpoint(right))
	}
}

// failingExporter is an exporter that always fails.
type failingExporter struct{ sdktrace.SpanExporter }

func (failingExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("no route")
}

func TestLoggingExporter_LogsLostSpansAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		e := &loggingExporter{SpanExporter: failingExporter{}, log: zap.New(core)}
		batch := tracetest.SpanStubs{{}, {}}.Snapshots()
		for range 4 {
			require.NoError(t, e.ExportSpans(t.Context(), batch), "the failure is only logged")
		}
		require.Equal(t, 1, logs.Len())
		time.Sleep(lossLogInterval)
		require.NoError(t, e.ExportSpans(t.Context(), batch))
		require.Equal(t, 2, logs.Len())
		require.Equal(t, int64(8), logs.All()[1].ContextMap()["spans"], "all spans lost since the last line")
		require.Equal(t, "no route", logs.All()[1].ContextMap()["error"])
	})
}
