package interact

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// Whatever the flags contain, the commands print no text unescaped, and no error quotes a value that may be a
// credential.
func FuzzFlags(f *testing.F) {
	for _, text := range []string{"", "name=env:HOME", "name=file:", "=env:X", "name=CANARY", "name", "a=b=c", "a\nb\x1b[2J\u202e", "env:\x00", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.Contains(text, "file:") { // the file would be read
			auth, err := credentialFlags{Credential: []string{text}}.readAuth()
			require.Equal(t, err == nil, auth != nil)
			if _, value, ok := strings.Cut(text, "="); err != nil && ok && len(value) > 12 && !strings.HasPrefix(value, "env:") {
				require.NotContains(t, err.Error(), value)
			}
		}
		for _, shown := range []string{console.EscapeLine(text), console.EscapeBeginning(text, 40), console.Escape(text)} {
			require.False(t, strings.ContainsFunc(shown, func(r rune) bool {
				return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
			}), "%q", shown)
		}
		require.NotContains(t, console.EscapeLine(text), "\n")
	})
}
