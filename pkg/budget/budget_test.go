package budget_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/budget"
)

func TestAmounts_DividePreservesTheSum(t *testing.T) {
	for range 500 {
		whole := budget.Amounts{
			Iterations: rand.Int64N(10), ModelCalls: rand.Int64N(100), ToolCalls: rand.Int64N(3), Tokens: rand.Int64N(1e6),
			Cost: budget.Unlimited, FanOut: rand.Int64N(20),
		}
		n := 1 + rand.IntN(16)
		parts := whole.Divide(n)
		require.Len(t, parts, n)
		for _, k := range budget.Kinds() {
			if whole.Get(k) == budget.Unlimited {
				require.EqualValues(t, budget.Unlimited, parts[0].Get(k))
				continue
			}
			sum, least, most := int64(0), whole.Get(k), int64(0)
			for _, p := range parts {
				sum, least, most = sum+p.Get(k), min(least, p.Get(k)), max(most, p.Get(k))
			}
			require.Equal(t, whole.Get(k), sum, "%s: nothing is lost, and nothing is made", k)
			require.LessOrEqual(t, most-least, int64(1), "%s: the parts are even", k)
		}
	}
}

func TestAmounts_SubtractStopsAtZero(t *testing.T) {
	whole := budget.Amounts{Tokens: 5, ToolCalls: 5, Cost: budget.Unlimited}
	require.Equal(t, budget.Amounts{ToolCalls: 3, Cost: budget.Unlimited}, whole.Subtract(budget.Amounts{Tokens: 9, ToolCalls: 2, Cost: 7}))
	require.Equal(t, budget.Amounts{Cost: budget.Unlimited, Tokens: 6}, whole.Subtract(whole).Add(budget.Amounts{Tokens: 6, Cost: 1}))
}

func TestLimits_LowerNeverRaises(t *testing.T) {
	limits := budget.Default()
	require.Equal(t, limits, limits.Lower(budget.Unbounded()))
	asked := budget.Unbounded()
	asked.Tokens, asked.ToolCalls, asked.Depth, asked.Policy = 10, 1000, 2, budget.Warn
	got := limits.Lower(asked)
	require.EqualValues(t, 10, got.Tokens)
	require.EqualValues(t, budget.DefaultToolCalls, got.ToolCalls)
	require.Equal(t, 2, got.Depth)
	require.Equal(t, budget.Block, got.Policy, "a caller makes a budget no weaker")

	limits.Policy = budget.Warn
	require.Equal(t, budget.Warn, limits.Lower(budget.Unbounded()).Policy)
	asked.Policy = budget.Block
	require.Equal(t, budget.Block, limits.Lower(asked).Policy)
}

func TestLimits_ReachedKindsReturnsKindsAtOrAboveTheFraction(t *testing.T) {
	limits := budget.Default()
	require.Empty(t, limits.ReachedKinds(budget.Amounts{ToolCalls: 399, Tokens: 3_999_999}, 0.8))
	require.Equal(t, []budget.Kind{budget.ToolCalls, budget.Tokens}, limits.ReachedKinds(budget.Amounts{ToolCalls: 400, Tokens: 4_000_000}, 0.8))
	require.Empty(t, budget.Unbounded().ReachedKinds(budget.Amounts{ToolCalls: 1e9}, 0.8))
}
