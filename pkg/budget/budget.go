// Package budget limits what the trace of a turn may use, including its children: model calls, tool calls, tokens and cost
// (contract OC-29, guarantee S17). The orchestrator that owns a trace adds up the usage and divides the rest among the
// steps.
package budget

import (
	"math"
	"strconv"
)

// Kind is a kind of usage. Its value is the name in workflow declarations.
type Kind string

// The kinds of usage. Depth has no amount: it limits how deep remote turns may nest.
const (
	Iterations Kind = "iterations" // model calls of the conversation; calls of plugins outside of it do not count
	ModelCalls Kind = "modelCalls" // requests to models, including calls of handlers
	ToolCalls  Kind = "toolCalls"  // executions of tools
	Tokens     Kind = "tokens"     // input and output together
	Cost       Kind = "cost"       // cost of models whose price is known
	FanOut     Kind = "fanOut"     // remote turns that a turn starts itself
	Depth      Kind = "depth"      // nesting depth of remote turns
)

// Kinds returns all kinds that have an amount, in the order in which they are reported.
func Kinds() []Kind { return []Kind{Iterations, ModelCalls, ToolCalls, Tokens, Cost, FanOut} }

// Units of amounts.
const (
	Unlimited = math.MaxInt64 // the amount that means no limit
	Dollar    = 1_000_000     // one US dollar in millionths, the unit of costs
)

// Amounts holds one amount for each kind. Amounts are never negative.
type Amounts struct {
	Iterations int64 `json:"iterations,omitempty"`
	ModelCalls int64 `json:"modelCalls,omitempty"`
	ToolCalls  int64 `json:"toolCalls,omitempty"`
	Tokens     int64 `json:"tokens,omitempty"`
	Cost       int64 `json:"cost,omitempty"` // in millionths of a US dollar
	FanOut     int64 `json:"fanOut,omitempty"`
}

// field returns a pointer to the field that holds the amount of kind k.
func (a *Amounts) field(k Kind) *int64 {
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

// Get returns the amount of kind k.
func (a Amounts) Get(k Kind) int64 { return *a.field(k) }

// combine applies a function to the two amounts of each kind.
func (a Amounts) combine(b Amounts, of func(a, b int64) int64) (out Amounts) {
	out.Iterations = of(a.Iterations, b.Iterations)
	out.ModelCalls = of(a.ModelCalls, b.ModelCalls)
	out.ToolCalls = of(a.ToolCalls, b.ToolCalls)
	out.Tokens = of(a.Tokens, b.Tokens)
	out.Cost = of(a.Cost, b.Cost)
	out.FanOut = of(a.FanOut, b.FanOut)
	return out
}

// Add returns the sum of two Amounts. It does not overflow: a sum above Unlimited becomes Unlimited.
func (a Amounts) Add(b Amounts) Amounts {
	return a.combine(b, func(a, b int64) int64 {
		if a >= Unlimited-b {
			return Unlimited
		}
		return a + b
	})
}

// Subtract returns a minus b for each kind, but at least 0. An unlimited amount stays Unlimited.
func (a Amounts) Subtract(b Amounts) Amounts {
	return a.combine(b, func(a, b int64) int64 {
		if a == Unlimited {
			return a
		}
		return max(0, a-b)
	})
}

// Max returns the larger amount of each kind.
func (a Amounts) Max(b Amounts) Amounts {
	return a.combine(b, func(a, b int64) int64 { return max(a, b) })
}

// Min returns the smaller amount of each kind.
func (a Amounts) Min(b Amounts) Amounts {
	return a.combine(b, func(a, b int64) int64 { return min(a, b) })
}

// Divide splits the amounts into n parts that are as equal as whole numbers allow. The parts never add up to more
// than the whole. An unlimited amount is Unlimited in each part.
func (a Amounts) Divide(n int) []Amounts {
	parts := make([]Amounts, n)
	for i := range parts {
		parts[i] = a.combine(Amounts{}, func(whole, _ int64) int64 {
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

// FormatAmount formats an amount of the kind for people. A cost is shown in US dollars.
func (k Kind) FormatAmount(amount int64) string {
	if k == Cost {
		return strconv.FormatFloat(float64(amount)/1e6, 'f', -1, 64)
	}
	return strconv.FormatInt(amount, 10)
}
