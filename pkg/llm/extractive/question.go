package extractive

import (
	"slices"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// findQuestion returns the user's question, and the messages to quote from: the files of the question and all
// later messages. If the question answers a clarifying question of the agent, it includes the user's original
// question (C-36).
func findQuestion(messages []conversation.Message) (string, []conversation.Message) {
	byUser := func(m conversation.Message) bool { return m.Role == conversation.RoleUser && m.Author == "" }
	last := lastIndex(messages, byUser)
	if last < 0 {
		return "", messages
	}
	question := messages[last].Text
	if last > 0 && isQuestion(messages[last-1]) {
		if first := lastIndex(messages[:last], byUser); first >= 0 {
			question = messages[first].Text + "\n" + question
		}
	}
	return question, append(attachmentsAsResults(messages[last]), messages[last+1:]...)
}

func isQuestion(m conversation.Message) bool {
	return m.Role == conversation.RoleAssistant && strings.HasSuffix(strings.TrimSpace(m.Text), "?")
}

func lastIndex(messages []conversation.Message, ok func(conversation.Message) bool) int {
	for i, m := range slices.Backward(messages) {
		if ok(m) {
			return i
		}
	}
	return -1
}

// isVague reports whether a question contains no word to search for.
func isVague(question string) bool { return len(contentWords(question)) == 0 }

// contentWords returns the words of a text that carry its meaning, in order and without duplicates.
func contentWords(text string) []string {
	var all []string
	seen := map[string]bool{}
	for _, w := range words(text) {
		lower := strings.ToLower(w)
		if stopWords[lower] || len(lower) < 2 || seen[stem(lower)] {
			continue
		}
		seen[stem(lower)] = true
		all = append(all, w)
	}
	return all
}

// stems returns the set of stems of the content words of a text.
func stems(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range contentWords(text) {
		all[stem(strings.ToLower(w))] = true
	}
	return all
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_'
	})
}

// stem removes the most common English endings from a lower-case word. The result need not be a real stem, but it
// must be the same for all forms of a word.
func stem(word string) string {
	for _, ending := range []struct{ from, to string }{
		{"ies", "y"}, {"ings", ""}, {"ing", ""}, {"ers", ""}, {"er", ""}, {"ed", ""}, {"es", ""}, {"s", ""}, {"e", ""},
	} {
		cut, ok := strings.CutSuffix(word, ending.from)
		if ok && len(cut) >= 3 && !strings.HasSuffix(word, "ss") {
			return cut + ending.to
		}
	}
	return word
}

// stopWords are words that say nothing about the subject of a question.
var stopWords = wordSet(`
	a about again ain all also am an and any anybody anyone anything are as at be because been before being
	between both but by can cannot could did do does doing done down during each else etc explain few for from
	further get give go going got had happen happened happening happens has have having he hello help her here hers hey hi him his how i if in
	info information into is it its just kind know let like ll lot many may maybe me mean might mine more most
	much must my need no nor not now of off ok okay on once one only or other others our ours out over own
	please question questions re really same say says shall she should show so some somebody something sort
	stuff such sure tell than thank thanks that the their theirs them then there these they thing things this
	those through to too under until up us use ve very want was way we well were what whatever when where
	which while who whom whose why will with without would yes you your yours`)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		set[w] = true
	}
	return set
}
