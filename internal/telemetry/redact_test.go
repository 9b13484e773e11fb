package telemetry

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A value under a key that looks like the name of a secret is not logged, whatever its type. Numbers are logged.
func TestLog_RedactsByKey(t *testing.T) {
	const canary = "CANARY"
	for _, key := range []string{
		"secret", "clientSecret", "token", "access-token", "password", "Password", "api_key", "apiKey", "API-KEY",
		"credential", "credentials", "auth", "Authorization", "bearer",
	} {
		var out bytes.Buffer
		log := zap.New(redactingCore{zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zap.DebugLevel)})
		fields := []zap.Field{
			zap.String(key, canary), zap.ByteString(key, []byte(canary)), zap.Binary(key, []byte(canary)), zap.NamedError(key, errors.New(canary)),
			zap.Stringer(key, &url.URL{Host: canary}), zap.Any(key, []string{canary}), zap.Strings(key, []string{canary}),
			zap.Any(key, struct{ Text string }{canary}), zap.Any("data", map[string]any{"deep": map[string]any{key: canary}}),
			zap.Any("labels", map[string]string{key: canary}), zap.Dict(key, zap.String("text", canary)),
		}
		log.Info("one by one", fields...)
		log.With(fields...).Debug("from here on")
		log.Sugar().Warnw("sugar", key, canary)
		require.NotContains(t, out.String(), canary, key)
		require.Contains(t, out.String(), "[REDACTED]", key)
		require.Equal(t, canary, fields[0].String, "the caller's fields are unchanged")
	}
	var out bytes.Buffer
	log := zap.New(redactingCore{zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zap.InfoLevel)})
	log.Info("spent", zap.Int("tokens", 42), zap.String("agent", "research"))
	log.Debug("not logged")
	require.Contains(t, out.String(), `"tokens":42,"agent":"research"`)
	require.NotContains(t, out.String(), "not logged")
}

func TestNew_LogsAreRedacted(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		log, err := newLogger("test", Config{LogLevel: "info", LogFormat: format}, zapcore.AddSync(io.Discard))
		require.NoError(t, err)
		require.IsType(t, redactingCore{}, log.Core())
	}
}
