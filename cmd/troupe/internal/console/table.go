package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Rows prints one item per line, the first of them after the name.
func Rows(w *tabwriter.Writer, name string, items []string) {
	if len(items) == 0 {
		items = []string{"-"}
	}
	for _, item := range items {
		Row(w, name, item)
		name = ""
	}
}

// Row prints a line of a table. No cell can reach into another one.
func Row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = EscapeLine(fmt.Sprint(c))
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// Join joins names on one line.
func Join(texts []string) string { return EscapeLine(strings.Join(texts, ", ")) }
