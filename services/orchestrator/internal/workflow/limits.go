package workflow

import (
	"math"

	"github.com/troupe-dev/troupe/pkg/budget"
)

// limitsDeclaration declares the budget of a turn. Limits that are not set have their defaults.
type limitsDeclaration struct {
	Steps      int      `yaml:"steps"`
	Iterations *int64   `yaml:"iterations"`
	ModelCalls *int64   `yaml:"modelCalls"`
	ToolCalls  *int64   `yaml:"toolCalls"`
	Tokens     *int64   `yaml:"tokens"`
	Cost       *float64 `yaml:"cost"` // US dollars
	FanOut     *int64   `yaml:"fanOut"`
	Depth      *int64   `yaml:"depth"`
	Policy     string   `yaml:"policy"`
}

// The highest limits that a workflow may declare.
const (
	maxCalls      = 100_000
	maxTokens     = 1_000_000_000
	maxCost       = 1_000_000 // US dollars
	maxFanOut     = 256
	maxChildDepth = 16
	minCost       = 1.0 / budget.Dollar
)

// checkLimits checks the declared limits and returns them, with defaults for those that are not set.
func (c *checker) checkLimits(d limitsDeclaration) budget.Limits {
	limits := budget.Default()
	depth := int64(limits.Depth)
	for _, f := range []struct {
		kind     budget.Kind
		declared *int64
		most     int64
		to       *int64
	}{
		{budget.Iterations, d.Iterations, maxCalls, &limits.Iterations},
		{budget.ModelCalls, d.ModelCalls, maxCalls, &limits.ModelCalls},
		{budget.ToolCalls, d.ToolCalls, maxCalls, &limits.ToolCalls},
		{budget.Tokens, d.Tokens, maxTokens, &limits.Tokens},
		{budget.FanOut, d.FanOut, maxFanOut, &limits.FanOut},
		{budget.Depth, d.Depth, maxChildDepth, &depth},
	} {
		if f.declared == nil {
			continue
		}
		if *f.declared < 1 || *f.declared > f.most {
			c.addProblem([]any{"limits", string(f.kind)}, "limits.%s: %d is not between 1 and %d; leave it out for the default", f.kind, *f.declared, f.most)
		}
		*f.to = *f.declared
	}
	limits.Depth = int(depth)
	if d.Cost != nil {
		if !(*d.Cost >= minCost && *d.Cost <= maxCost) {
			c.addProblem([]any{"limits", "cost"}, "limits.cost: %v US dollars is not between 0.000001 and %d; leave it out for the default", *d.Cost, maxCost)
		}
		limits.Cost = int64(math.Round(*d.Cost * budget.Dollar))
	}
	switch policy := budget.Policy(d.Policy); policy {
	case "":
	case budget.Block, budget.Warn:
		limits.Policy = policy
	default:
		c.addProblem([]any{"limits", "policy"}, "limits.policy: unknown policy %q; there are block, warn", d.Policy)
	}
	return limits
}
