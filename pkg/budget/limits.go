package budget

import "cmp"

// Policy decides what happens to a call that would exceed a limit.
type Policy string

// The policies.
const (
	Block Policy = "block" // the call is not made, and the step fails with policy_budget
	Warn  Policy = "warn"  // the call is made, and a warning is published
)

// The default limits of a trace. Cost comes from OC-29, depth and fan-out from S17. Iterations and model calls suffice
// for 20 steps with 10 iterations each. Tool calls and tokens are higher than in OC-29, because a working agent makes
// more: 200 calls with 2 KiB each, ten at a time, take about 3 million tokens, as each model call reads all results
// before it.
const (
	DefaultIterations = 200
	DefaultModelCalls = 200
	DefaultToolCalls  = 500
	DefaultTokens     = 5_000_000
	DefaultCost       = 100 * Dollar
	DefaultFanOut     = 16
	DefaultDepth      = 4
)

// Limits limits what a trace may use. Depth and FanOut block calls under every policy.
type Limits struct {
	Amounts
	Depth  int    `json:"depth"`
	Policy Policy `json:"policy,omitempty"` // (empty means Block)
}

// Default returns the limits for a trace that specifies none.
func Default() Limits {
	return Limits{
		Amounts: Amounts{
			Iterations: DefaultIterations, ModelCalls: DefaultModelCalls, ToolCalls: DefaultToolCalls,
			Tokens: DefaultTokens, Cost: DefaultCost, FanOut: DefaultFanOut,
		},
		Depth: DefaultDepth, Policy: Block,
	}
}

// Unbounded returns Limits in which all amounts and the depth are unlimited. It sets no policy.
func Unbounded() Limits {
	var l Limits
	for _, k := range Kinds() {
		*l.field(k) = Unlimited
	}
	l.Depth = Unlimited
	return l
}

// Get returns the limit of kind k.
func (l Limits) Get(k Kind) int64 {
	if k == Depth {
		return int64(l.Depth)
	}
	return l.Amounts.Get(k)
}

// Lower returns the lower limit of each kind and the stricter of the two policies.
func (l Limits) Lower(by Limits) Limits {
	policy := cmp.Or(l.Policy, Block)
	if by.Policy == Block {
		policy = Block
	}
	return Limits{Amounts: l.Min(by.Amounts), Depth: min(l.Depth, by.Depth), Policy: policy}
}

// ReachedKinds returns the kinds whose usage has reached the given fraction of the limit, such as 0.8.
func (l Limits) ReachedKinds(used Amounts, part float64) []Kind {
	var all []Kind
	for _, k := range Kinds() {
		if limit := l.Get(k); limit != Unlimited && used.Get(k) > 0 && float64(used.Get(k)) >= part*float64(limit) {
			all = append(all, k)
		}
	}
	return all
}
