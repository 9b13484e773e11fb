package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// around is how many characters are shown on either side of the place where two texts part, and
// shownLines how many lines of each.
const (
	around     = 60
	shownLines = 6
)

// sides prints both sides of a difference: of long texts the place where they part.
func sides(w io.Writer, d *troupev1.Difference) {
	was, now := parting(d.GetRecorded(), d.GetNow())
	for _, side := range []struct{ name, text string }{{"recorded", was}, {"now", now}} {
		lines := strings.Split(visible(side.text), "\n")
		if len(lines) > shownLines {
			lines = append(lines[:shownLines], "…")
		}
		if side.text == "" {
			lines = []string{"nothing"}
		}
		fmt.Fprintf(w, "  %-9s %s\n", side.name, strings.Join(lines, "\n            "))
	}
}

// parting cuts both texts to what is around the first place where they differ.
func parting(a, b string) (string, string) {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if len(a) <= 4*around && len(b) <= 4*around {
		return a, b
	}
	return near(a, same), near(b, same)
}

// near is what is around a place in a text.
func near(text string, at int) string {
	from, to := max(0, at-around), min(len(text), at+3*around)
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
