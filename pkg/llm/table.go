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

// DefaultContext is the context of an unknown model, in tokens (CO-21).
const DefaultContext = 128_000

// Price is the price of a million tokens in US dollars, which is the price of one token in millionths of a US dollar. A
// price of 0 for cached or written tokens means the price of other input.
type Price struct {
	Input  float64 `json:"input"`
	Cached float64 `json:"cached"` // input that the provider had read before
	Write  float64 `json:"write"`  // input that the provider keeps to read again
	Output float64 `json:"output"`
}

// Entry holds the context and the prices of a model.
type Entry struct {
	Price            // all 0: not known
	Context int64    `json:"context"` // in tokens (0 if unknown)
	Over    *OverUse `json:"over"`    // what a long request costs instead, as a whole
	Fixed   bool     `json:"fixed"`   // its temperature cannot be set
}

// OverUse is the price of requests with more input than some tokens.
type OverUse struct {
	Price
	Tokens int64 `json:"tokens"`
}

// Table holds contexts and prices of models by their full names, as of a day. It is data: you can read a table of your own
// from JSON of the same form. Prices are list prices of the provider, without discounts and taxes. A price that is not in
// the table is unknown; it is never guessed (CO-12).
type Table struct {
	AsOf   string           `json:"asOf"` // such as "2026-11-21"
	Models map[string]Entry `json:"models"`
}

//go:embed models.json
var builtin []byte

// BuiltinTable returns the table of this version. Do not modify it.
var BuiltinTable = sync.OnceValue(func() Table {
	t, err := ReadTable(builtin)
	if err != nil {
		return Table{} // a test reads it; without it, nothing is known
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
		if least := min(e.Input, e.Cached, e.Write, e.Output); least < 0 || e.Context < 0 {
			return Table{}, fmt.Errorf("read the table of models: %s has a negative number", name)
		}
	}
	return t, nil
}

// At returns the table for models at an address: t itself, or the built-in table if t is empty and the address is the
// provider's own (""). The prices of another server are unknown.
func (t Table) At(baseURL string) Table {
	if t.Models == nil && baseURL == "" {
		return BuiltinTable()
	}
	return t
}

// dated matches the day at the end of a model's name, which pins a version.
var dated = regexp.MustCompile(`-(\d{4}-\d{2}-\d{2}|\d{8})$`)

// Find returns the entry of a model, by its name or by its name without the day that pins a version.
func (t Table) Find(name string) (Entry, bool) {
	e, ok := t.Models[name]
	if !ok {
		e, ok = t.Models[dated.ReplaceAllString(name, "")]
	}
	return e, ok
}

// Cost returns the cost of one request with usage u, in millionths of a US dollar, rounded (0 if the price is unknown). The
// input of the request may decide which price applies, so do not pass the sum of several requests.
func (e Entry) Cost(u execution.Usage) int64 {
	p := e.Price
	if e.Over != nil && u.InputTokens > e.Over.Tokens {
		p = e.Over.Price
	}
	plain := u.InputTokens - u.CachedTokens - u.CacheWriteTokens
	return int64(math.Round(float64(plain)*p.Input +
		float64(u.CachedTokens)*or(p.Cached, p.Input) +
		float64(u.CacheWriteTokens)*or(p.Write, p.Input) +
		float64(u.OutputTokens)*p.Output))
}

func or(price, other float64) float64 {
	if price == 0 {
		return other
	}
	return price
}
