package telemetry

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"
)

// lines is where log lines go. What came into a line from outside cannot look like another line,
// nor like a command to the terminal that shows it (guarantees S12): control characters and those
// that turn the direction of writing stand as \u001b. That changes no text in JSON, which reads
// the same behind it.
type lines struct{ zapcore.WriteSyncer }

// Write writes one line, which ends with the only line break that is left.
func (l lines) Write(p []byte) (int, error) {
	line, end := p, ""
	if n := len(p); n > 0 && p[n-1] == '\n' {
		line, end = p[:n-1], "\n"
	}
	if !harmless(line) {
		line = neutral(line)
	}
	if _, err := l.WriteSyncer.Write(append(slices.Clip(line), end...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func harmless(line []byte) bool {
	for _, b := range line {
		if b < ' ' && b != '\t' || b >= 0x7f {
			return false
		}
	}
	return true
}

func neutral(line []byte) []byte {
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
