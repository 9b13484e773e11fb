package flow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// ledgerOf returns the ledger of a budget with a number of model calls.
func ledgerOf(calls int64) *budget.Ledger {
	limits := budget.Default()
	limits.ModelCalls = calls
	return budget.New(limits, 0)
}

// spend returns a reply that used tokens.
func spend(text string) scripted.Reply {
	return scripted.Reply{Deltas: []string{text}, Usage: execution.Usage{InputTokens: 10, OutputTokens: 5}}
}

// An agent that forgives a failed model does not forgive an exhausted budget: a substitute text would look like an
// answer.
func TestRun_AnExhaustedBudgetIsNotForgiven(t *testing.T) {
	for _, c := range []agent.Config{{OnFailure: agent.Degrade}, {AsksUser: true}} {
		c.Name, c.Model = "a", scripted.New(spend("No."))
		step := question("?")
		step.Budget = ledgerOf(0)
		_, done, err := observe(t.Context(), build(t, c), agent.Invocation{Step: step})
		require.Equal(t, failure.PolicyBudget, failure.ModeOf(err))
		require.Empty(t, done.Result.Text)
	}
}

// The children of a flow, whether in order or in parallel, and agents that are tools share the budget of the step.
func TestFlow_SharesOneBudget(t *testing.T) {
	child := func(name string) *agent.Agent {
		return build(t, agent.Config{Name: name, Model: scripted.New(spend("I am " + name + "."))})
	}
	for name, c := range map[string]struct {
		make  func() *agent.Agent
		calls int64 // of models that the flow needs
	}{
		"sequence": {func() *agent.Agent {
			return flowOf(t)(flow.Sequence(agent.Config{Name: "flow"}, child("a"), child("b"), child("c")))
		}, 3},
		"parallel": {func() *agent.Agent {
			return flowOf(t)(flow.Parallel(agent.Config{Name: "flow"}, child("a"), child("b"), child("c")))
		}, 3},
		"tool": {func() *agent.Agent { return bossOf(t, toolOf(t, child("a"))) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			step := question("?")
			step.Budget = ledgerOf(c.calls)
			_, _, err := observe(t.Context(), c.make(), agent.Invocation{Step: step})
			require.NoError(t, err)
			require.Equal(t, c.calls, step.Budget.Used().ModelCalls)

			for less := range c.calls {
				step.Budget = ledgerOf(less)
				_, _, err = observe(t.Context(), c.make(), agent.Invocation{Step: step})
				require.Equal(t, failure.PolicyBudget, failure.ModeOf(err), "%v", err)
				require.LessOrEqual(t, step.Budget.Used().ModelCalls, less)
			}
		})
	}
}
