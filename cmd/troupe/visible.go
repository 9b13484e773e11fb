package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// What models, tools and users say may hold anything. On a terminal it must neither move the
// cursor, nor hide, nor look like a line that this command prints.

// visible is a text of several lines in which all that cannot be seen is an escape, but for
// the joiners that emoji and some scripts need.
func visible(text string) string {
	return escaped(strings.ReplaceAll(text, "\r\n", "\n"), "\n\t\u200c\u200d")
}

// indented is visible with a margin before all lines but the first, so that none looks like one of this command.
func indented(text string, margin int) string {
	return strings.ReplaceAll(visible(text), "\n", "\n"+strings.Repeat(" ", margin))
}

// oneLine is a text in which the ends of lines are escapes too.
func oneLine(text string) string { return escaped(text, "") }

// brief is the beginning of a text, for tables and lines.
func brief(text string, characters int) string {
	return oneLine(conversation.Brief(text, characters))
}

// row prints a line of a table, of which no cell reaches out of its place.
func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = oneLine(fmt.Sprint(c))
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// joined are names on one line.
func joined(texts []string) string { return oneLine(strings.Join(texts, ", ")) }

func escaped(text, but string) string {
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

// word is an argument as one types it into a shell.
func word(text string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:@+/", r))
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(oneLine(text), "'", `'\''`) + "'"
}
