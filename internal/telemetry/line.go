package telemetry

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"
)

// escapingWriter writes log lines. It escapes control characters other than tabs, and characters that change the
// writing direction, as in \u001b. So text from outside can neither look like another log line nor control the
// terminal (guarantee S12). In JSON the escaped text decodes to the original.
type escapingWriter struct{ zapcore.WriteSyncer }

// Write writes one log line. It keeps only the line break at the end.
func (e escapingWriter) Write(p []byte) (int, error) {
	line, end := p, ""
	if n := len(p); n > 0 && p[n-1] == '\n' {
		line, end = p[:n-1], "\n"
	}
	if !needsNoEscape(line) {
		line = escapeControl(line)
	}
	if _, err := e.WriteSyncer.Write(append(slices.Clip(line), end...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func needsNoEscape(line []byte) bool {
	for _, b := range line {
		if b < ' ' && b != '\t' || b >= 0x7f {
			return false
		}
	}
	return true
}

func escapeControl(line []byte) []byte {
	out := make([]byte, 0, len(line)+64)
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		switch {
		case r == utf8.RuneError && size == 1:
			out = utf8.AppendRune(out, r)
		case r != '\t' && unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, line[:size]...)
		}
		line = line[size:]
	}
	return out
}
