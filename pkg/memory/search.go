package memory

import (
	"strings"
	"unicode"
)

// Query is the set of words to search for, in lower case.
type Query map[string]bool

// NewQuery returns a query for the words of a text. A word is a run of letters and digits.
func NewQuery(text string) Query {
	q := Query{}
	for word := range splitWords(text) {
		q[word] = true
	}
	return q
}

// Score returns the share of the query's words that the text contains, from 0 to 1.
func (q Query) Score(text string) float64 {
	if len(q) == 0 {
		return 0
	}
	held := map[string]bool{}
	for word := range splitWords(text) {
		if q[word] {
			held[word] = true
		}
	}
	return float64(len(held)) / float64(len(q))
}

func splitWords(text string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
