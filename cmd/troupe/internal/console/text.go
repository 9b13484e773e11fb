package console

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// Models, tools and users choose these texts. On a terminal the texts must not move the cursor, hide other text,
// or look like output of the command itself.

// Escape replaces each invisible character of a text with an escape sequence. It keeps line breaks, tabs, and the
// joiners that emoji and some scripts need.
func Escape(text string) string {
	return EscapeExcept(strings.ReplaceAll(text, "\r\n", "\n"), "\n\t\u200c\u200d")
}

// EscapeAndIndent escapes a text and indents every line after the first, so that no line looks like output of the
// command.
func EscapeAndIndent(text string, margin int) string {
	return strings.ReplaceAll(Escape(text), "\n", "\n"+strings.Repeat(" ", margin))
}

// EscapeLine escapes a text, including its line breaks.
func EscapeLine(text string) string { return EscapeExcept(text, "") }

// EscapeBeginning returns the beginning of a text, escaped and on one line, for tables and lists.
func EscapeBeginning(text string, characters int) string {
	return EscapeLine(conversation.Excerpt(text, characters))
}

// EscapeExcept replaces each character that could move the cursor or break a line with an escape sequence. It
// keeps the given characters.
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

// QuoteForShell quotes an argument for a POSIX shell.
func QuoteForShell(text string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:@+/", r))
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(EscapeLine(text), "'", `'\''`) + "'"
}
