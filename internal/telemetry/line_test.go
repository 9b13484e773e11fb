package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Text from outside can neither look like another log line nor control the terminal that shows it.
func TestLogger_EscapesTextFromOutside(t *testing.T) {
	evil := "a\nERROR\tforged\r\x1b[2J\x1b]0;title\a\x7f\u009b31m\u202e\u2028\xff" + strings.Repeat("x", 1<<20)
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			log, err := newLogger("service", Config{LogLevel: "info", LogFormat: format}, zapcore.AddSync(&out))
			require.NoError(t, err)
			log.Named(evil[:40]).With(zap.String(evil[:40], evil)).Error(evil, zap.String("text", evil), zap.Error(errors.New(evil)), zap.Any("any",
				map[string]string{evil: evil}))
			log.Info("next")
			text := out.String()
			require.Equal(t, 2, strings.Count(text, "\n"))
			require.NotRegexp(t, "[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f\u202e\u2028]", strings.ReplaceAll(text, "\n", ""))
			if format == "json" {
				var line map[string]any
				first, _, _ := strings.Cut(text, "\n")
				require.NoError(t, json.Unmarshal([]byte(first), &line))
				require.Equal(t, strings.ToValidUTF8(evil, "\ufffd"), line["text"], "nothing is lost")
				require.Equal(t, "service", line["service"])
			}
		})
	}
}
