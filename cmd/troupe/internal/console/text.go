package console

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// What models, tools and users say may hold anything. On a terminal it must neither move the
// cursor, nor hide, nor look like a line that this command prints.

// Escape is a text of several lines in which all that cannot be seen is an escape, but for
// the joiners that emoji and some scripts need.
func Escape(text string) string {
	return EscapeExcept(strings.ReplaceAll(text, "\r\n", "\n"), "\n\t\u200c\u200d")
}

// Indent is visible with a margin before all lines but the first, so that none looks like one of this command.
func Indent(text string, margin int) string {
	return strings.ReplaceAll(Escape(text), "\n", "\n"+strings.Repeat(" ", margin))
}

// EscapeLine is a text in which the ends of lines are escapes too.
func EscapeLine(text string) string { return EscapeExcept(text, "") }

// Brief is the beginning of a text, for tables and lines.
func Brief(text string, characters int) string {
	return EscapeLine(conversation.Brief(text, characters))
}

func EscapeExcept(text, but string) string {
	seen := func(r rune) bool { return unicode.IsPrint(r) || strings.ContainsRune(but, r) }
	if !strings.ContainsFunc(text, func(r rune) bool { return !seen(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if seen(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// ShellWord is an argument as one types it into a shell.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:@+/", r))
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(EscapeLine(text), "'", `'\''`) + "'"
}
