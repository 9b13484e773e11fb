package result

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MatchRoute returns the route that a reply names, in any letter case. A reply that equals a route wins. Otherwise
// it returns the route that occurs first as a whole word (empty if none occurs).
func MatchRoute(routes []string, reply string) string {
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

// indexWord returns the index of word in text, with no letter, digit or hyphen next to it, or -1.
func indexWord(text, word string) int {
	isWordPart := func(r rune) bool { return r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; word != ""; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return -1
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(word):])
		if !isWordPart(before) && !isWordPart(after) {
			return i
		}
		from = i + len(word)
	}
	return -1
}
