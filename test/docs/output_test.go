package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// varyingOutput lists the patterns of output that differs between runs, and the placeholder for each.
var varyingOutput = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\n +│   (\S)`), " $1"}, // a long line that the page wraps
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "HASH"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "TRACE"},
	{regexp.MustCompile(`([a-z])-[0-9a-f]{8}\b`), "$1-ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d(:\d\d(\.\d+)?)?\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ns|µs|ms|s|m)\b`), "DURATION"},
	{regexp.MustCompile(`127\.0\.0\.1:[1-6]\d{4}\b`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`[ \t]+`), " "}, // widths of columns follow what is in them
	{regexp.MustCompile(` ?\n ?`), "\n"},
}

func normalize(text string) string {
	text = "\n" + text
	for _, v := range varyingOutput {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return strings.Trim(text, " \n")
}

// matches reports whether the output of a program matches the output that a page quotes. In the quote, … stands
// for any text within a line, and a line that is only … stands for any lines.
func matches(quoted, printed string) bool {
	var pattern strings.Builder
	for line := range strings.SplitSeq(normalize(quoted), "\n") {
		if line == "…" {
			pattern.WriteString(`(.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	return regexp.MustCompile(`^(?:` + pattern.String() + `)$`).MatchString(normalize(printed) + "\n")
}

func TestMatches_IgnoresOnlyVaryingParts(t *testing.T) {
	const printed = "session ec9dc8ca-459f-4a94-9b2c-2407a88e3b3a  trace 050c8b1ca1994b489b75c1556617ce51\n" +
		"  took 6ms\n  │ one two\nat research-6bd9a221   127.0.0.1:41081\n"
	for quoted, want := range map[string]bool{
		printed: true,
		"session 00000000-459f-4a94-9b2c-2407a88e3b3a trace 00000000000000000000000000000000\n took 1.2s\n │ one\n │   two\nat research-00000000 127.0.0.1:50000": true,
		"session …\n…\nat research-6bd9a221 127.0.0.1:41081": true,
		"session …\n…\nat research-6bd9a221":                 false,
		"…\nat search-6bd9a221 127.0.0.1:41081":              false,
		"session …": false,
	} {
		require.Equal(t, want, matches(quoted, printed), quoted)
	}
}
