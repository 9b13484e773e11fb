// Package telemetry provides the logs (zap), metrics (OpenTelemetry, scraped by Prometheus) and traces
// (OpenTelemetry over OTLP) of a program. It is passed to each component and is never global.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/troupe-dev/troupe/internal/audit"
)

// Config holds the telemetry settings in the configuration of every program.
type Config struct {
	LogLevel     string `help:"Lowest level that is logged: debug, info, warn, error." enum:"debug,info,warn,error" default:"info" env:"TROUPE_LOG_LEVEL"`
	LogFormat    string `help:"How log lines look: json, or console for people." enum:"json,console" default:"json" env:"TROUPE_LOG_FORMAT"`
	OTLPEndpoint string `help:"URL of an OTLP collector for spans (empty means none are exported)." env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL"`
	AuditLog     string `help:"File of the audit log (empty means none). Do not move it." env:"TROUPE_AUDIT_LOG" type:"path" default:"" placeholder:"FILE"`
}

// Telemetry holds the log, the metrics, the traces and the audit log of a program. It is safe for concurrent use.
type Telemetry struct {
	Log     *zap.Logger
	Metrics metric.MeterProvider
	Traces  trace.TracerProvider
	// MetricsHandler serves the metrics to Prometheus.
	MetricsHandler http.Handler
	// Audit is the audit log (nil discards all entries).
	Audit *audit.Log
	// Panics counts recovered panics (nil counts none).
	Panics *Panics

	shutdown []func(context.Context) error
}

// flushTimeout bounds the time that Close takes to send buffered data.
const flushTimeout = 2 * time.Second

// New returns the telemetry of the program with this name. The caller closes it.
func New(ctx context.Context, name string, cfg Config) (*Telemetry, error) {
	log, err := newLogger(name, cfg, zapcore.Lock(os.Stderr))
	if err != nil {
		return nil, err
	}
	if err := checkEndpoint(cfg.OTLPEndpoint); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("telemetry: metrics: %w", err)
	}
	res := resource.NewSchemaless(attribute.String("service.name", name))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res))
	t := &Telemetry{
		Log:            log.Named(name),
		Metrics:        meters,
		Traces:         noop.NewTracerProvider(),
		Panics:         newPanics(meters),
		MetricsHandler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		shutdown:       []func(context.Context) error{meters.Shutdown},
	}
	if cfg.OTLPEndpoint != "" {
		out, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.OTLPEndpoint))
		if err != nil {
			return nil, fmt.Errorf("--otlp-endpoint: %w", err)
		}
		spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(&loggingExporter{SpanExporter: out, log: t.Log}), sdktrace.WithResource(res))
		t.Traces = spans
		// Shut the exporter down last and explicitly, because only this ends a running export.
		t.shutdown = append(t.shutdown, spans.Shutdown, out.Shutdown)
	}
	if cfg.AuditLog != "" {
		t.Audit, err = audit.New(audit.Config{Path: cfg.AuditLog, Name: name, Log: t.Log, Meter: meters.Meter("troupe/audit")})
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("--audit-log: %w", err)
		}
		t.shutdown = append(t.shutdown, func(context.Context) error { return t.Audit.Close() })
	}
	return t, nil
}

// Discard returns telemetry that drops everything, for tests and tools.
func Discard() *Telemetry { return FromLogger(zap.NewNop()) }

// FromLogger returns telemetry that writes logs to a logger and drops everything else.
func FromLogger(log *zap.Logger) *Telemetry {
	meters := sdkmetric.NewMeterProvider()
	return &Telemetry{
		Log:            log,
		Metrics:        meters,
		Traces:         noop.NewTracerProvider(),
		Panics:         newPanics(meters),
		MetricsHandler: http.NotFoundHandler(),
	}
}

// Named returns the telemetry of a component of the program. Its log lines and audit entries carry the name.
func (t *Telemetry) Named(name string) *Telemetry {
	c := *t
	c.Log, c.Audit, c.shutdown = t.Log.Named(name), t.Audit.Named(name), nil
	return &c
}

// Close sends buffered data, for at most flushTimeout. The telemetry must not be used after that.
func (t *Telemetry) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	var errs []error
	for _, stop := range t.shutdown {
		errs = append(errs, stop(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		t.Log.Warn("telemetry could not be flushed; the last metrics or spans may be missing", zap.Error(err))
	}
	_ = t.Log.Sync() // standard error may not support sync, and there is no other place to log that
}

// newLogger returns the logger of a program. In JSON format each line has timestamp, level, service, component and
// message (contract OC-31).
func newLogger(service string, cfg Config, out zapcore.WriteSyncer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(cfg.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("telemetry: log level %q: want debug, info, warn or error", cfg.LogLevel)
	}
	// Sampling is disabled, because a log with missing lines misleads its readers.
	to := func(encoder zapcore.Encoder, options ...zap.Option) *zap.Logger {
		return zap.New(redactingCore{zapcore.NewCore(encoder, escapingWriter{out}, level)}, append(options, zap.ErrorOutput(escapingWriter{out}))...)
	}
	if cfg.LogFormat == "console" {
		z := zap.NewDevelopmentEncoderConfig()
		z.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		return to(zapcore.NewConsoleEncoder(z)), nil
	}
	z := zap.NewProductionEncoderConfig()
	z.TimeKey, z.EncodeTime = "timestamp", zapcore.RFC3339NanoTimeEncoder
	z.NameKey, z.MessageKey = "component", "message"
	return to(zapcore.NewJSONEncoder(z), zap.AddStacktrace(zapcore.ErrorLevel), zap.Fields(zap.String("service", service))), nil
}
