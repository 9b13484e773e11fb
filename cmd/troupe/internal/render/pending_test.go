package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArguments_AreFormattedInFull(t *testing.T) {
	require.Equal(t, `{"a": 1}`, formatArguments(" {\"a\": 1}\n"))
	long := strings.Repeat("x", 100)
	require.Equal(t, "{\n  \"a\": \""+long+"\",\n  \"b\": 2\n}", formatArguments(`{"a":"`+long+`","b":2}`))
	require.Equal(t, long+`\n  call 1-3  safe`, formatArguments(long+"\n  call 1-3  safe"), "what is no JSON has no lines of its own")
	require.NotContains(t, formatArguments(`{"a":"`+long+"\u2028\u200b\u202e"+`"}`), "\u202e")
}
