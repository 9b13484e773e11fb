package structured_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/telemetry/structured"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// The list contains the names that OC-30 requires and the one that SO-10 adds.
// Req: OC-30
func TestEmit_RejectsUnknownNames(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	want := []structured.EventName{
		"approval_received", "approval_requested", "approval_timeout", "budget_exceeded", "budget_updated", "budget_warning",
		"execution_complete", "execution_error", "execution_start", "memory_query", "memory_store", "orchestration.complete", "plan_created", "route_decision",
		"tool_call_complete", "tool_call_error", "tool_call_start",
	}
	require.Equal(t, want, structured.EventNames())
	for i, name := range want {
		require.NoError(t, structured.Emit(t.Context(), log, structured.Event{Name: name, Message: "so"}))
		require.Equal(t, string(name), logs.All()[i].ContextMap()["event"])
	}
	err := structured.Emit(t.Context(), log, structured.Event{Name: "plan_made"})
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	require.ErrorContains(t, err, "plan_created")
	require.Equal(t, len(want), logs.Len())
}

// Req: OC-30
func TestEmit_RedactsSecretsAndCutsTexts(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	long := strings.Repeat("x", 1000)
	err := structured.Emit(t.Context(), zap.New(core), structured.Event{Name: structured.RouteDecision, Data: map[string]any{
		"client_secret": "CANARY", "Token": "CANARY", "db_password": 7, "API_KEY": "CANARY", "apiKey": "CANARY", "x-api-key": []any{"CANARY"},
		"credentials": map[string]string{"a": "CANARY"}, "Authorization": "CANARY", "bearer": "CANARY",
		"inner": map[string]any{"list": []any{map[string]any{"my_token": "CANARY", "goal": long}}, "pairs": map[string]string{"password": "CANARY", "b": "c"}},
		"goal":  long, "reason": long, "note": long, "n": 3,
	}})
	require.NoError(t, err)
	text := fmt.Sprint(logs.All()[0].ContextMap())
	require.NotContains(t, text, "CANARY")
	data, _ := logs.All()[0].ContextMap()["data"].(map[string]any)
	for _, key := range []string{"client_secret", "Token", "db_password", "API_KEY", "apiKey", "x-api-key", "credentials", "Authorization", "bearer"} {
		require.Equal(t, structured.Redacted, data[key], key)
	}
	require.Len(t, []rune(data["goal"].(string)), 200)
	require.Len(t, []rune(data["reason"].(string)), 500)
	require.Equal(t, long, data["note"])
	require.Equal(t, 3, data["n"])
	inner, _ := data["inner"].(map[string]any)
	require.Equal(t, map[string]any{"password": structured.Redacted, "b": "c"}, inner["pairs"])
}

// logger returns a logger that writes to a file in the format in which programs log to standard error.
func logger(t *testing.T, path string) *zap.Logger {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	tel, err := telemetry.New(t.Context(), "orchestrator", telemetry.Config{LogLevel: "debug", LogFormat: "json"})
	require.NoError(t, err)
	t.Cleanup(func() { tel.Close(); require.NoError(t, file.Close()) })
	return tel.Log
}

// A logged event has all fields that a program writes.
// Req: OC-31
func TestEmit_WritesTheFieldsOfARecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := logger(t, path)
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	require.NoError(t, structured.Emit(ctx, log.Named("turn"), structured.Event{
		Name: structured.ExecutionStart, Message: "a turn started", TraceID: "t1", UserID: "u1", Profile: "default",
	}))
	line, err := os.ReadFile(path)
	require.NoError(t, err)
	var record map[string]string
	require.NoError(t, json.Unmarshal(line, &record))
	at, err := time.Parse(time.RFC3339Nano, record["timestamp"])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	delete(record, "timestamp")
	require.Equal(t, map[string]string{
		"level": "debug", "service": "orchestrator", "trace_id": "t1", "span_id": "0200000000000000", "user_id": "u1", "profile": "default",
		"component": "orchestrator.turn", "event": "execution_start", "message": "a turn started",
	}, record)
}
