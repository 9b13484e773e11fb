package budget

import "cmp"

// Policy says what becomes of a call that would go beyond a limit.
type Policy string

// The policies.
const (
	Block Policy = "block" // it is not made, and the step fails with policy_budget
	Warn  Policy = "warn"  // it is made, and a warning is told
)

// Defaults of what a trace may use: calls, tokens and cost are those of OC-29, depth and fan-out
// those of S17. Iterations and model calls are what 20 steps of 10 iterations take.
const (
	DefaultIterations = 200
	DefaultModelCalls = 200
	DefaultToolCalls  = 50
	DefaultTokens     = 100_000
	DefaultCost       = 100 * Dollar
	DefaultFanOut     = 16
	DefaultDepth      = 4
)

// Limits are what a trace may use. Depth and FanOut are bounded whatever the policy is.
type Limits struct {
	Amounts
	Depth  int    `json:"depth"`
	Policy Policy `json:"policy,omitempty"` // empty: Block
}

// Default are the limits of a trace that nobody named any for.
func Default() Limits {
	return Limits{
		Amounts: Amounts{
			Iterations: DefaultIterations, ModelCalls: DefaultModelCalls, ToolCalls: DefaultToolCalls,
			Tokens: DefaultTokens, Cost: DefaultCost, FanOut: DefaultFanOut,
		},
		Depth: DefaultDepth, Policy: Block,
	}
}

// Open are limits that bound nothing, and say nothing of the policy.
func Open() Limits {
	var l Limits
	for _, k := range Kinds() {
		*l.at(k) = Unlimited
	}
	l.Depth = Unlimited
	return l
}

// Of is the limit of a kind.
func (l Limits) Of(k Kind) int64 {
	if k == Depth {
		return int64(l.Depth)
	}
	return l.Amounts.Of(k)
}

// Lower are the limits, or others where those are lower. Of the policies the stricter one stays.
func (l Limits) Lower(by Limits) Limits {
	policy := cmp.Or(l.Policy, Block)
	if by.Policy == Block {
		policy = Block
	}
	return Limits{Amounts: l.Least(by.Amounts), Depth: min(l.Depth, by.Depth), Policy: policy}
}

// Reached are the kinds of which the given part is used, such as 0.8, in their order.
func (l Limits) Reached(used Amounts, part float64) []Kind {
	var all []Kind
	for _, k := range Kinds() {
		if limit := l.Of(k); limit != Unlimited && used.Of(k) > 0 && float64(used.Of(k)) >= part*float64(limit) {
			all = append(all, k)
		}
	}
	return all
}
