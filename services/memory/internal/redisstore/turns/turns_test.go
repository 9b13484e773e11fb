package turns

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Decoding an invalid turn hash returns an error and does not panic.
func FuzzDecodeTurn(f *testing.F) {
	for _, text := range []string{"", "1", "-1", "9223372036854775807", "1700000 fuz", "\x08\x01\x12\x02hi"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = decodeTurn(text, map[string]string{"steps": text, "number": text, "result1": text, "failure": text, "answers": text})
		_, _ = decodeTurn(text, map[string]string{"steps": "1", "result1": text})
	})
}

// decodeTurn does not loop over a wrong number of steps in the hash.
func TestDecodeTurn_ValidatesTheCountOfSteps(t *testing.T) {
	turn, err := decodeTurn("turn", map[string]string{"steps": "9223372036854775807", "result1": "", "result51": ""})
	require.NoError(t, err)
	require.Len(t, turn.Steps, 1)
}
