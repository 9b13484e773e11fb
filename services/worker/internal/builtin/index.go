package builtin

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// batchSize is how many passages are indexed before the context is checked again.
const batchSize = 256

// Fields of an indexed passage.
const (
	fieldText = iota
	fieldHeading
	fieldPath
	fieldCount
)

// scoreClauses are the components of a passage's score. The scores of all matching clauses are added. The sum is
// multiplied by the share of clauses that match.
var scoreClauses = []struct {
	field         int
	boost         float64
	needsAllWords bool // matches only if the field contains all words of the query
}{
	{fieldHeading, 2.0, true}, // the heading may be the question itself
	{fieldText, 1.5, true},
	{fieldText, 1.0, false},
	{fieldHeading, 0.6, false},
	{fieldPath, 0.2, false},
}

// Parameters of BM25: how quickly repetitions of a word lose weight, and how much the length of a field counts.
const (
	saturation   = 1.2
	lengthWeight = 0.75
)

// index finds passages by their words, ranked by BM25. It is immutable and therefore safe for concurrent use.
type index struct {
	passages []passage
	fields   [fieldCount]field
}

// field is the index of one field over all passages.
type field struct {
	postings      map[string][]posting // by word, in the order of the passages
	lengths       []int                // words in the field, by passage
	averageLength float64              // average length of the field, as newIndex computes it
}

// posting says that a word occurs count times in a passage.
type posting struct {
	passage int
	count   int
}

// newIndex indexes passages. It stops when ctx ends.
//
// The average length of a field is not the mean. Each batch counts a word only once, however many of its
// passages contain it. The sum over all batches is divided by the number of passages. So the value is below the
// mean, and long passages get lower scores. The boosts of the clauses compensate for that.
func newIndex(ctx context.Context, passages []passage) (*index, error) {
	i := &index{passages: passages}
	for f := range i.fields {
		i.fields[f] = field{postings: map[string][]posting{}, lengths: make([]int, len(passages))}
	}
	var different [fieldCount]int
	for first := 0; first < len(passages); first += batchSize {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		last := min(first+batchSize, len(passages))
		for n := first; n < last; n++ {
			p := passages[n]
			for f, text := range [fieldCount]string{fieldText: p.text, fieldHeading: p.heading, fieldPath: p.path} {
				different[f] += i.fields[f].add(n, first, tokenize(text))
			}
		}
	}
	for f := range i.fields {
		i.fields[f].averageLength = math.Ceil(float64(different[f]) / float64(len(passages)))
	}
	return i, nil
}

// add indexes the words of passage n. It returns how many of them occur in no earlier passage of the batch that
// starts at first.
func (f *field) add(n, first int, words []string) (different int) {
	f.lengths[n] = len(words)
	for _, w := range words {
		all := f.postings[w]
		switch last := len(all) - 1; {
		case last >= 0 && all[last].passage == n:
			all[last].count++
			continue
		case last < 0 || all[last].passage < first:
			different++
		}
		f.postings[w] = append(all, posting{n, 1})
	}
	return different
}

// score returns what a word adds to the score of a passage that contains it.
func (f *field) score(all []posting, p posting) float64 {
	total, with := float64(len(f.lengths)), float64(len(all))
	rarity := math.Log(1 + (total-with+0.5)/(with+0.5))
	frequency := math.Sqrt(float64(p.count))
	length := 1 - lengthWeight + lengthWeight*float64(f.lengths[p.passage])/f.averageLength
	return rarity * rarity * frequency * saturation / (frequency + saturation*length)
}

// search returns at most limit passages, best match first. Passages with equal scores keep the order of the files.
func (i *index) search(ctx context.Context, query string, limit int) ([]passage, error) {
	type match struct {
		passage int
		score   float64
		matched int // words of the query, or clauses
	}
	asked := tokenize(query)
	best := map[int]match{}
	for _, c := range scoreClauses {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := &i.fields[c.field]
		found := map[int]match{}
		for _, w := range asked {
			all := f.postings[w]
			for _, p := range all {
				m := found[p.passage]
				found[p.passage] = match{p.passage, m.score + c.boost*f.score(all, p), m.matched + 1}
			}
		}
		for n, m := range found {
			if c.needsAllWords {
				if m.matched < len(asked) {
					continue
				}
			} else {
				m.score *= float64(m.matched) / float64(len(asked))
			}
			sum := best[n]
			best[n] = match{n, sum.score + m.score, sum.matched + 1}
		}
	}
	ranked := make([]match, 0, len(best))
	for _, m := range best {
		m.score *= float64(m.matched) / float64(len(scoreClauses))
		ranked = append(ranked, m)
	}
	slices.SortFunc(ranked, func(a, b match) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.passage, b.passage))
	})
	ranked = ranked[:min(limit, len(ranked))]
	passages := make([]passage, len(ranked))
	for n, m := range ranked {
		passages[n] = i.passages[m.passage]
	}
	return passages, nil
}
