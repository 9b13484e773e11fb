package llm

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// DefaultContextSize is the context size that is assumed for an unknown model, in tokens (CO-21).
const DefaultContextSize = 128_000

// Price holds prices in US dollars per million tokens, which are also the prices per token in millionths of a US
// dollar. If the price of cached or written tokens is 0, the price of other input applies.
type Price struct {
	Input      float64 `json:"input"`
	Cached     float64 `json:"cached"` // input that the provider reads from its cache
	CacheWrite float64 `json:"write"`  // input that the provider writes to its cache
	Output     float64 `json:"output"`
}

// ModelEntry holds the context size and the prices of a model.
type ModelEntry struct {
	Price                              // prices (all 0 means unknown)
	ContextSize      int64             `json:"context"` // in tokens (0 if unknown)
	LongRequest      *LongRequestPrice `json:"over"`    // prices of a long request, which apply to all its tokens (nil if it costs the same)
	FixedTemperature bool              `json:"fixed"`   // the provider rejects a temperature for this model
}

// LongRequestPrice holds the prices of requests with more input than Tokens.
type LongRequestPrice struct {
	Price
	Tokens int64 `json:"tokens"`
}

// Table holds the context sizes and prices of models by their full names, as of one day. You can read your own
// table from JSON of the same form. Prices are list prices of the provider, without discounts and taxes. A price
// that is not in the table is unknown and never guessed (CO-12).
type Table struct {
	AsOf   string                `json:"asOf"` // such as "2026-11-21"
	Models map[string]ModelEntry `json:"models"`
}

//go:embed models.json
var builtinJSON []byte

// BuiltinTable returns the table that is built into this version. Do not modify it.
var BuiltinTable = sync.OnceValue(func() Table {
	t, err := ReadTable(builtinJSON)
	if err != nil {
		return Table{} // a test checks that the table can be read; without it all prices are unknown
	}
	return t
})

// ReadTable reads a table from JSON.
func ReadTable(data []byte) (Table, error) {
	var t Table
	if err := json.Unmarshal(data, &t); err != nil {
		return Table{}, fmt.Errorf("read the table of models: %w", err)
	}
	if _, err := time.Parse(time.DateOnly, t.AsOf); err != nil {
		return Table{}, fmt.Errorf("read the table of models: asOf is %q; use a day such as 2026-11-21", t.AsOf)
	}
	for name, e := range t.Models {
		if least := min(e.Input, e.Cached, e.CacheWrite, e.Output); least < 0 || e.ContextSize < 0 {
			return Table{}, fmt.Errorf("read the table of models: %s has a negative number", name)
		}
	}
	return t, nil
}

// ForBaseURL returns the table for models at an address. It returns the built-in table if t is empty and baseURL
// is "", which means the provider's own address. Otherwise it returns t, because the prices of another server are
// unknown.
func (t Table) ForBaseURL(baseURL string) Table {
	if t.Models == nil && baseURL == "" {
		return BuiltinTable()
	}
	return t
}

// dateSuffix matches a date at the end of a model's name, which selects a fixed version of the model.
var dateSuffix = regexp.MustCompile(`-(\d{4}-\d{2}-\d{2}|\d{8})$`)

// Find returns the entry of a model. If there is none for the name, it looks for the name without a date at the
// end.
func (t Table) Find(name string) (ModelEntry, bool) {
	e, ok := t.Models[name]
	if !ok {
		e, ok = t.Models[dateSuffix.ReplaceAllString(name, "")]
	}
	return e, ok
}

// Cost returns the cost of one request with usage u, rounded to millionths of a US dollar (0 if the price is
// unknown). Do not pass the sum of several requests, because the input of a single request decides which price
// applies.
func (e ModelEntry) Cost(u execution.Usage) int64 {
	p := e.Price
	if e.LongRequest != nil && u.InputTokens > e.LongRequest.Tokens {
		p = e.LongRequest.Price
	}
	plain := u.InputTokens - u.CachedTokens - u.CacheWriteTokens
	return int64(math.Round(float64(plain)*p.Input +
		float64(u.CachedTokens)*firstNonZero(p.Cached, p.Input) +
		float64(u.CacheWriteTokens)*firstNonZero(p.CacheWrite, p.Input) +
		float64(u.OutputTokens)*p.Output))
}

func firstNonZero(price, other float64) float64 {
	if price == 0 {
		return other
	}
	return price
}
