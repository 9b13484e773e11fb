package trace

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// excerptMargin is the number of characters shown on each side of the first difference between two texts.
// maxExcerptLines is the number of lines shown of each text.
const (
	excerptMargin   = 60
	maxExcerptLines = 6
)

// printDifference prints the recorded text and the new text. It shortens long texts to the part where they differ.
func printDifference(w io.Writer, d *troupev1.Difference) {
	was, now := excerptsAtDifference(d.GetRecorded(), d.GetNow())
	for _, side := range []struct{ name, text string }{{"recorded", was}, {"now", now}} {
		lines := strings.Split(console.Escape(side.text), "\n")
		if len(lines) > maxExcerptLines {
			lines = append(lines[:maxExcerptLines], "…")
		}
		if side.text == "" {
			lines = []string{"nothing"}
		}
		fmt.Fprintf(w, "  %-9s %s\n", side.name, strings.Join(lines, "\n            "))
	}
}

// excerptsAtDifference shortens both texts to the part around their first difference.
func excerptsAtDifference(a, b string) (string, string) {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if len(a) <= 4*excerptMargin && len(b) <= 4*excerptMargin {
		return a, b
	}
	return excerptAround(a, same), excerptAround(b, same)
}

// excerptAround returns the part of a text around a position.
func excerptAround(text string, at int) string {
	from, to := max(0, at-excerptMargin), min(len(text), at+3*excerptMargin)
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	cut := text[min(from, to):to]
	if from > 0 {
		cut = "…" + cut
	}
	if to < len(text) {
		cut += "…"
	}
	return cut
}
