package registry_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
)

func TestSingleLine_DropsInvisibleCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"Finds facts.":                        "Finds facts.",
		" Findet\tÄpfel\r\n und\u00a0Birnen ": "Findet Äpfel und Birnen",
		"a\x1b[31mb\x00\u202ec\U000e0041":     "a[31mbc",
		"":                                    "",
	} {
		require.Equal(t, want, registry.SingleLine(text))
	}
	long := registry.SingleLine(strings.Repeat("ä", 1<<20))
	require.LessOrEqual(t, len(long), registry.MaxTextBytes)
	require.True(t, utf8.ValidString(long))
}
