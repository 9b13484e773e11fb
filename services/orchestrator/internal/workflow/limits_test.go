package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/budget"
)

func TestLoad_ReadsTheBudget(t *testing.T) {
	const steps = "  steps: {a: {agent: x, end: true}}\n"
	set, err := loadWorkflow(t, "  entry: a\n"+steps)
	require.NoError(t, err)
	flow, _ := set.Find("w")
	require.Equal(t, budget.Default(), flow.Budget)
	require.Equal(t, budget.Default(), SingleAgent("a").Budget)

	set, err = loadWorkflow(t,
		"  entry: a\n  limits: {iterations: 1, modelCalls: 2, toolCalls: 3, tokens: 4, cost: 0.5, fanOut: 6, depth: 7, policy: warn}\n"+steps)
	require.NoError(t, err)
	flow, _ = set.Find("w")
	require.Equal(t, budget.Limits{
		Amounts: budget.Amounts{Iterations: 1, ModelCalls: 2, ToolCalls: 3, Tokens: 4, Cost: budget.Dollar / 2, FanOut: 6}, Depth: 7, Policy: budget.Warn,
	}, flow.Budget)

	for limits, want := range map[string]string{
		"toolCalls: 0":     "w.yaml:6: limits.toolCalls: 0 is not between 1 and 100000; leave it out for the default",
		"tokens: -1":       "w.yaml:6: limits.tokens: -1 is not between 1 and 1000000000",
		"depth: 17":        "w.yaml:6: limits.depth: 17 is not between 1 and 16",
		"cost: 0":          "w.yaml:6: limits.cost: 0 US dollars is not between 0.000001 and 1000000",
		"policy: ask":      `w.yaml:6: limits.policy: unknown policy "ask"; there are block, warn`,
		"toolCall: 1":      `unknown field "limits.toolCall"; did you mean "toolCalls"?`,
		"iterations: true": "limits.iterations",
	} {
		_, err := loadWorkflow(t, "  entry: a\n  limits: {"+limits+"}\n"+steps)
		require.ErrorContains(t, err, want)
	}
}
