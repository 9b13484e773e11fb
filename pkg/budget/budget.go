// Package budget is what the trace of a turn may use, children included, and what of it is used:
// model calls, tool calls, tokens, cost (contract OC-29, guarantee S17). It knows no store and no
// wire: who owns a trace adds up what was used, and parts the rest among those who work for it.
package budget

import (
	"math"
	"strconv"
)

// Kind is one thing that is bounded, by the name that declarations have for it.
type Kind string

// The kinds. Depth is no amount: it bounds where a turn may lie.
const (
	Iterations Kind = "iterations" // model calls of conversations, with their tool rounds
	ModelCalls Kind = "modelCalls" // requests to models, those of handlers included
	ToolCalls  Kind = "toolCalls"  // tools that are run
	Tokens     Kind = "tokens"     // of input and output together
	Cost       Kind = "cost"       // of models whose prices are known
	FanOut     Kind = "fanOut"     // remote turns that a turn begins itself
	Depth      Kind = "depth"      // of remote turns below the first
)

// Kinds are those that are amounts, in the order in which they are told.
func Kinds() []Kind { return []Kind{Iterations, ModelCalls, ToolCalls, Tokens, Cost, FanOut} }

// Units of amounts.
const (
	Unlimited = math.MaxInt64 // no limit
	Dollar    = 1_000_000     // one US dollar, in the unit of costs
)

// Amounts are how much of each kind. They are never negative.
type Amounts struct {
	Iterations int64 `json:"iterations,omitempty"`
	ModelCalls int64 `json:"modelCalls,omitempty"`
	ToolCalls  int64 `json:"toolCalls,omitempty"`
	Tokens     int64 `json:"tokens,omitempty"`
	Cost       int64 `json:"cost,omitempty"` // in millionths of a US dollar
	FanOut     int64 `json:"fanOut,omitempty"`
}

// at is where the amount of a kind is.
func (a *Amounts) at(k Kind) *int64 {
	switch k {
	case Iterations:
		return &a.Iterations
	case ModelCalls:
		return &a.ModelCalls
	case ToolCalls:
		return &a.ToolCalls
	case Tokens:
		return &a.Tokens
	case Cost:
		return &a.Cost
	case FanOut:
		return &a.FanOut
	case Depth:
	}
	return new(int64)
}

// Of is the amount of a kind.
func (a Amounts) Of(k Kind) int64 { return *a.at(k) }

// each makes amounts of those of both, kind by kind.
func (a Amounts) each(b Amounts, of func(a, b int64) int64) (out Amounts) {
	out.Iterations = of(a.Iterations, b.Iterations)
	out.ModelCalls = of(a.ModelCalls, b.ModelCalls)
	out.ToolCalls = of(a.ToolCalls, b.ToolCalls)
	out.Tokens = of(a.Tokens, b.Tokens)
	out.Cost = of(a.Cost, b.Cost)
	out.FanOut = of(a.FanOut, b.FanOut)
	return out
}

// Add is the sum.
func (a Amounts) Add(b Amounts) Amounts {
	return a.each(b, func(a, b int64) int64 {
		if a >= Unlimited-b {
			return Unlimited
		}
		return a + b
	})
}

// Less is what is left of the amounts when others are taken away: of a kind that nothing bounds
// Unlimited, and never below 0.
func (a Amounts) Less(b Amounts) Amounts {
	return a.each(b, func(a, b int64) int64 {
		if a == Unlimited {
			return a
		}
		return max(0, a-b)
	})
}

// Most is the larger of both, kind by kind.
func (a Amounts) Most(b Amounts) Amounts {
	return a.each(b, func(a, b int64) int64 { return max(a, b) })
}

// Least is the smaller of both, kind by kind.
func (a Amounts) Least(b Amounts) Amounts {
	return a.each(b, func(a, b int64) int64 { return min(a, b) })
}

// Parts are the amounts parted among n, as evenly as whole numbers allow: together they are no
// more than the whole. What nothing bounds is not parted.
func (a Amounts) Parts(n int) []Amounts {
	parts := make([]Amounts, n)
	for i := range parts {
		parts[i] = a.each(Amounts{}, func(whole, _ int64) int64 {
			if whole == Unlimited {
				return whole
			}
			part := whole / int64(n)
			if int64(i) < whole%int64(n) {
				part++
			}
			return part
		})
	}
	return parts
}

// Text is an amount of the kind for a person: a cost is in US dollars.
func (k Kind) Text(amount int64) string {
	if k == Cost {
		return strconv.FormatFloat(float64(amount)/1e6, 'f', -1, 64)
	}
	return strconv.FormatInt(amount, 10)
}
