package builtin

import (
	"strings"

	"github.com/blevesearch/go-porterstemmer"
	"github.com/blevesearch/segment"
)

// tokenize returns the words of an English text as they are indexed: in lower case, stemmed, and without stop
// words. Words of other languages are only converted to lower case.
func tokenize(text string) []string {
	var all []string
	for words := segment.NewWordSegmenterDirect([]byte(text)); words.Segment(); {
		if words.Type() == segment.None {
			continue // blanks and punctuation
		}
		word := strings.ToLower(trimPossessive(words.Text()))
		if !stopWords[word] {
			all = append(all, string(porterstemmer.StemWithoutLowerCasing([]rune(word))))
		}
	}
	return all
}

// trimPossessive removes a possessive ending: agent's becomes agent.
func trimPossessive(word string) string {
	for _, end := range []string{"'s", "’s", "＇s", "'S", "’S", "＇S"} {
		if stem, ok := strings.CutSuffix(word, end); ok {
			return stem
		}
	}
	return word
}

// stopWords are English words that are too common to be useful in a search. The list is from the Snowball project
// (BSD licence).
var stopWords = func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(`
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves what which who whom this that these those am is are
was were be been being have has had having do does did doing would should could ought i'm you're he's she's
it's we're they're i've you've we've they've i'd you'd he'd she'd we'd they'd i'll you'll he'll she'll we'll
they'll isn't aren't wasn't weren't hasn't haven't hadn't doesn't don't didn't won't wouldn't shan't shouldn't
can't cannot couldn't mustn't let's that's who's what's here's there's when's where's why's how's a an the and
but if or because as until while of at by for with about against between into through during before after
above below to from up down in out on off over under again further then once here there when where why how all
any both each few more most other some such no nor not only own same so than too very
`) {
		all[word] = true
	}
	return all
}()
