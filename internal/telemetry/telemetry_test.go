package telemetry_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func scrape(t *testing.T, tel *telemetry.Telemetry) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	tel.MetricsHandler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return answer.Code, answer.Body.String()
}

func TestNew_ServesCountedMetrics(t *testing.T) {
	tel, err := telemetry.New(t.Context(), "program", telemetry.Config{LogLevel: "error", LogFormat: "json"})
	require.NoError(t, err)
	defer tel.Close()
	turns, err := tel.Named("part").Metrics.Meter("test").Int64Counter("troupe.turns")
	require.NoError(t, err)
	turns.Add(t.Context(), 3)
	code, body := scrape(t, tel)
	require.Equal(t, http.StatusOK, code)
	require.Regexp(t, `(?m)^troupe_turns_total\{.*\} 3$`, body)
	require.Contains(t, body, `service_name="program"`)
	require.Contains(t, body, "go_goroutines")
	require.False(t, tel.Traces.Tracer("test") == nil)
}

func TestNew_LogsAsConfigured(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		tel, err := telemetry.New(t.Context(), "program", telemetry.Config{LogLevel: "warn", LogFormat: format})
		require.NoError(t, err)
		require.False(t, tel.Log.Core().Enabled(zapcore.InfoLevel))
		require.True(t, tel.Log.Core().Enabled(zapcore.WarnLevel))
		require.Equal(t, "program", tel.Log.Name())
		require.Equal(t, "program.part", tel.Named("part").Log.Name())
		tel.Close()
	}
	_, err := telemetry.New(t.Context(), "program", telemetry.Config{LogLevel: "loud"})
	require.EqualError(t, err, `telemetry: log level "loud": want debug, info, warn or error`)
}

// collector is an OTLP server that accepts every call and sends the request to a channel.
func collector(t *testing.T) (url string, calls <-chan string) {
	t.Helper()
	received := make(chan string, 10)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		var body emptypb.Empty // an unknown message keeps the bytes of every field
		if err := stream.RecvMsg(&body); err != nil {
			return err
		}
		received <- method + " " + string(body.ProtoReflect().GetUnknown())
		return stream.SendMsg(&emptypb.Empty{})
	}))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-ended) })
	return "http://" + lis.Addr().String(), received
}

func TestClose_SendsBufferedSpans(t *testing.T) {
	url, calls := collector(t)
	tel, err := telemetry.New(t.Context(), "program", telemetry.Config{LogLevel: "error", OTLPEndpoint: url})
	require.NoError(t, err)
	_, span := tel.Traces.Tracer("test").Start(t.Context(), "a turn")
	span.End()
	tel.Close()
	call := <-calls
	require.Contains(t, call, "TraceService/Export")
	require.Contains(t, call, "a turn")
	require.Contains(t, call, "program")
}

// An unreachable collector does not delay the end of a program.
func TestClose_ReturnsSoonWhenTheCollectorIsUnreachable(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	tel, err := telemetry.New(t.Context(), "program", telemetry.Config{LogLevel: "error", OTLPEndpoint: "http://127.0.0.1:1"})
	require.NoError(t, err)
	tel.Log = zap.New(core)
	_, span := tel.Traces.Tracer("test").Start(t.Context(), "a turn")
	span.End()
	began := time.Now()
	tel.Close()
	require.Less(t, time.Since(began), 10*time.Second)
	require.Equal(t, 1, logs.FilterMessage("telemetry could not be flushed; the last metrics or spans may be missing").Len())
}

func TestDiscard_DropsEverything(t *testing.T) {
	tel := telemetry.Discard()
	counter, err := tel.Metrics.Meter("test").Int64Counter("n")
	require.NoError(t, err)
	counter.Add(t.Context(), 1)
	code, _ := scrape(t, tel)
	require.Equal(t, http.StatusNotFound, code)
	tel.Close()
}

// All components of a program write to the same audit log, each under its name (guarantee S19).
func TestNew_KeepsAnAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	tel, err := telemetry.New(t.Context(), "test", telemetry.Config{LogLevel: "error", LogFormat: "json", AuditLog: path})
	require.NoError(t, err)
	tel.Named("memory").Audit.Record(audit.Entry{Kind: audit.Admin, Actor: "admin ada", Action: "look"})
	_, err = telemetry.New(t.Context(), "test", telemetry.Config{LogLevel: "error", LogFormat: "json", AuditLog: path})
	require.ErrorContains(t, err, "--audit-log: audit log: "+path)
	tel.Close()
	at := map[string]string{}
	_, err = audit.Verify([]string{path}, "", func(_ string, _ int, r audit.RecordedEntry) { at[r.Action] = r.Component })
	require.NoError(t, err)
	require.Equal(t, "memory", at["look"])
	telemetry.Discard().Named("x").Audit.Record(audit.Entry{})
}
