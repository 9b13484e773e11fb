package extractive

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

const (
	maxQuotes      = 4   // maximum number of quotes in one answer
	maxQuoteLength = 400 // maximum length of a quote in characters
)

// nothingFound is the beginning of an answer without quotes.
const nothingFound = "I found nothing on that"

// composeAnswer returns an answer that consists of quotes, each with its place. A final answer also lists the
// places at the end.
func composeAnswer(question string, found []passage, final bool) string {
	quotes := bestUnits(question, found)
	if len(quotes) == 0 {
		return nothingFound + " in what I could read.\n\n" + Disclaimer
	}
	var b strings.Builder
	b.WriteString("On “" + conversation.Excerpt(question, 200) + "” the documents say:\n")
	var places []string
	for _, q := range quotes {
		b.WriteString("\n- “" + q.text + "”")
		if q.place == "" {
			continue
		}
		b.WriteString(" (" + q.place + ")")
		if !slices.Contains(places, q.place) {
			places = append(places, q.place)
		}
	}
	b.WriteString("\n")
	if final && len(places) > 0 {
		b.WriteString("\nSources:\n" + strings.Join(places, "\n") + "\n")
	}
	b.WriteString("\n" + Disclaimer)
	return b.String()
}

// scoredUnit is a unit with a score that says how well it fits the question.
type scoredUnit struct {
	unit
	score float64
}

// bestUnits returns the units that fit the question best, best first. Rare words of the question count more than
// frequent ones. The score of a unit also grows with the score of its passage, and earlier passages score higher.
// The result is empty if no passage has a third of the question's words.
func bestUnits(question string, found []passage) []unit {
	wanted := stems(question)
	var all []unit
	var has []map[string]bool // for each unit, the wanted stems in it
	frequency := map[string]float64{}
	inPassage := make([]map[string]bool, len(found))
	for n, p := range found {
		inPassage[n] = map[string]bool{}
		for _, u := range p.units(n) {
			match := matchingStems(wanted, u.text)
			for s := range match {
				inPassage[n][s] = true
				frequency[s]++
			}
			all, has = append(all, u), append(has, match)
		}
	}
	weight := func(set map[string]bool) float64 {
		sum := 0.0
		for _, s := range slices.Sorted(maps.Keys(set)) { // sorted, because the sum depends on the order
			sum += math.Log(1 + float64(len(all))/frequency[s])
		}
		return sum
	}
	var candidates []scoredUnit
	for i, u := range all {
		around := inPassage[u.passage]
		if len(has[i]) == 0 || 3*len(around) < len(wanted) {
			continue
		}
		score := weight(has[i]) + weight(matchingStems(wanted, u.rawText)) + 0.3*weight(around)
		score *= 1 + 0.5/float64(1+u.passage)
		score *= 1 / (1 + float64(len(u.text))/800)
		if len(words(u.text)) < 4 {
			score /= 2 // a heading or a bare name says little
		}
		candidates = append(candidates, scoredUnit{u, score})
	}
	slices.SortStableFunc(candidates, func(a, b scoredUnit) int { return cmp.Compare(b.score, a.score) })

	var quotes []unit
	for _, c := range candidates {
		again := slices.ContainsFunc(quotes, func(q unit) bool { return q.text == c.text })
		if len(quotes) == maxQuotes || c.score < candidates[0].score/2 {
			break
		}
		if !again {
			quotes = append(quotes, c.unit)
		}
	}
	return quotes
}

// matchingStems returns the wanted stems that a text contains.
func matchingStems(wanted map[string]bool, text string) map[string]bool {
	found := stems(text)
	maps.DeleteFunc(found, func(s string, _ bool) bool { return !wanted[s] })
	return found
}
