package console

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// Models, tools and users may say anything. On a terminal their texts must not move the cursor, hide, or look like
// a line of this command.

// Escape escapes everything that cannot be seen in a text of several lines, except for the joiners that emoji and
// some scripts need.
func Escape(text string) string {
	return EscapeExcept(strings.ReplaceAll(text, "\r\n", "\n"), "\n\t\u200c\u200d")
}

// Indent escapes a text and indents all lines but the first, so that none looks like a line of this command.
func Indent(text string, margin int) string {
	return strings.ReplaceAll(Escape(text), "\n", "\n"+strings.Repeat(" ", margin))
}

// EscapeLine escapes a text, including its line ends.
func EscapeLine(text string) string { return EscapeExcept(text, "") }

// Brief returns the beginning of a text, for tables and lines.
func Brief(text string, characters int) string {
	return EscapeLine(conversation.Brief(text, characters))
}

// EscapeExcept escapes characters that could move a cursor or break a line, except those given.
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

// ShellWord quotes an argument for a shell.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:@+/", r))
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(EscapeLine(text), "'", `'\''`) + "'"
}
