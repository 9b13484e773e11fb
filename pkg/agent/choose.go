package agent

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// choose finds the route that a reply names, in any letter case: the reply itself, else
// the one that is named first as a whole word. It is empty when none is.
func choose(routes []string, reply string) string {
	reply = strings.ToLower(strings.TrimSpace(reply))
	best, at := "", len(reply)
	for _, route := range routes {
		name := strings.ToLower(route)
		if reply == name {
			return route
		}
		i := indexWord(reply, name)
		if i >= 0 && (i < at || i == at && len(route) > len(best)) {
			best, at = route, i
		}
	}
	return best
}

// indexWord is where word stands in text with no letter, digit or hyphen beside it, or -1.
func indexWord(text, word string) int {
	inside := func(r rune) bool { return r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; word != ""; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return -1
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(word):])
		if !inside(before) && !inside(after) {
			return i
		}
		from = i + len(word)
	}
	return -1
}
