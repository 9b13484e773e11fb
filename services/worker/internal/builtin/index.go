package builtin

import (
	"context"
	"strconv"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/search/query"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// batchSize is how many passages are indexed between two looks at the context.
const batchSize = 256

// The fields of an indexed passage, and how much a word counts in each.
const (
	fieldText    = "text"
	fieldHeading = "heading"
	fieldPath    = "path"

	boostAsked   = 2.0 // all words of the query in the heading: it may be the very question
	boostAll     = 1.5 // all of them in the text
	boostText    = 1.0
	boostHeading = 0.6
	boostPath    = 0.2
)

// index finds passages by their words. It is safe for concurrent use.
type index struct {
	bleve    bleve.Index
	passages []passage // their number is their id in bleve
}

func newIndex(ctx context.Context, passages []passage) (*index, error) {
	b, err := bleve.NewUsing("", fields(), scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, unavailable("the index of the documents cannot be made", err)
	}
	i := &index{bleve: b, passages: passages}
	if err := i.fill(ctx); err != nil {
		_ = i.close() // the error that matters is the first
		return nil, err
	}
	return i, nil
}

func fields() mapping.IndexMapping {
	text := bleve.NewTextFieldMapping()
	text.Analyzer = en.AnalyzerName
	text.Store, text.IncludeInAll, text.IncludeTermVectors, text.DocValues = false, false, false, false
	document := bleve.NewDocumentStaticMapping()
	for _, field := range []string{fieldText, fieldHeading, fieldPath} {
		document.AddFieldMappingsAt(field, text)
	}
	m := bleve.NewIndexMapping()
	m.ScoringModel = "bm25" // the default favours short passages too much
	m.DefaultMapping = document
	m.DefaultAnalyzer = en.AnalyzerName
	return m
}

func (i *index) fill(ctx context.Context) error {
	batch := i.bleve.NewBatch()
	for n, p := range i.passages {
		err := batch.Index(strconv.Itoa(n), map[string]any{fieldText: p.text, fieldHeading: p.heading, fieldPath: p.path})
		if err == nil && (batch.Size() == batchSize || n == len(i.passages)-1) {
			err = i.bleve.Batch(batch)
			batch.Reset()
		}
		if err != nil {
			return unavailable("the documents cannot be indexed", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// search returns at most limit passages, best first; equal ones in the order of the files.
func (i *index) search(ctx context.Context, words string, limit int) ([]passage, error) {
	match := func(field string, boost float64) *query.MatchQuery {
		q := bleve.NewMatchQuery(words)
		q.SetField(field)
		q.SetBoost(boost)
		return q
	}
	asked, all := match(fieldHeading, boostAsked), match(fieldText, boostAll)
	asked.SetOperator(query.MatchQueryOperatorAnd)
	all.SetOperator(query.MatchQueryOperatorAnd)
	request := bleve.NewSearchRequestOptions(bleve.NewDisjunctionQuery(
		asked, all, match(fieldText, boostText), match(fieldHeading, boostHeading), match(fieldPath, boostPath),
	), limit, 0, false)
	request.SortBy([]string{"-_score", "_id"})
	result, err := i.bleve.SearchInContext(ctx, request)
	if err != nil {
		return nil, unavailable("the documents cannot be searched", err)
	}
	found := make([]passage, 0, len(result.Hits))
	for _, hit := range result.Hits {
		if n, err := strconv.Atoi(hit.ID); err == nil && n < len(i.passages) {
			found = append(found, i.passages[n])
		}
	}
	return found, nil
}

func (i *index) close() error { return i.bleve.Close() }

func unavailable(what string, cause error) error {
	return failure.New(failure.ResourceTool, "search_documents", what).Because(cause)
}
