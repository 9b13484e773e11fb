package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// PrintItems prints a name and its items, one item per line. The first item follows the name on the same line.
func PrintItems(w *tabwriter.Writer, name string, items []string) {
	if len(items) == 0 {
		items = []string{"-"}
	}
	for _, item := range items {
		PrintRow(w, name, item)
		name = ""
	}
}

// PrintRow prints one line of a table. It escapes each cell, so that the text of a cell cannot break the table.
func PrintRow(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = EscapeLine(fmt.Sprint(c))
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// JoinNames escapes names and joins them with commas on one line.
func JoinNames(texts []string) string { return EscapeLine(strings.Join(texts, ", ")) }
