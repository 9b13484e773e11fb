package mcptool

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Whatever a program writes to stdout, the reader returns only JSON messages, one on each line.
func FuzzOutput(f *testing.F) {
	for _, text := range []string{"", "hello\n", "{}\n", "[1]\n{\"a\":\n}\n", "{}", "\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n", "{\xff}\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		read, _ := io.ReadAll(newMessageReader(io.NopCloser(bytes.NewReader(text)), zap.NewNop())) // garbage ends it
		for line := range bytes.Lines(read) {
			require.True(t, json.Valid(line), "%q", line)
		}
	})
}
