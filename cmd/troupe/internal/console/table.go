package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Rows prints one of the items a line, behind a name.
func Rows(w *tabwriter.Writer, name string, items []string) {
	if len(items) == 0 {
		items = []string{"-"}
	}
	for _, item := range items {
		Row(w, name, item)
		name = ""
	}
}

// Row prints a line of a table, of which no cell reaches out of its place.
func Row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = EscapeLine(fmt.Sprint(c))
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// Join are names on one line.
func Join(texts []string) string { return EscapeLine(strings.Join(texts, ", ")) }
