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

// newLedger returns a ledger whose budget allows the given number of model calls.
func newLedger(calls int64) *budget.Ledger {
	limits := budget.Default()
	limits.ModelCalls = calls
	return budget.New(limits, 0)
}

// replyWithUsage returns a reply that used tokens.
func replyWithUsage(text string) scripted.Reply {
	return scripted.Reply{Deltas: []string{text}, Usage: execution.Usage{InputTokens: 10, OutputTokens: 5}}
}

// An agent that degrades after a model failure does not degrade when its budget is exhausted. A substitute text
// would look like an answer.
func TestRun_ExhaustedBudgetFailsTheStep(t *testing.T) {
	for _, c := range []agent.Config{{OnFailure: agent.Degrade}, {AsksUser: true}} {
		c.Name, c.Model = "a", scripted.New(replyWithUsage("No."))
		step := questionStep("?")
		step.Budget = newLedger(0)
		_, done, err := runAndDescribe(t.Context(), build(t, c), agent.Invocation{Step: step})
		require.Equal(t, failure.PolicyBudget, failure.ModeOf(err))
		require.Empty(t, done.Result.Text)
	}
}

// All agents of a step share one budget: children in order, children in parallel, and agents that are tools.
func TestFlow_SharesOneBudget(t *testing.T) {
	child := func(name string) *agent.Agent {
		return build(t, agent.Config{Name: name, Model: scripted.New(replyWithUsage("I am " + name + "."))})
	}
	for name, c := range map[string]struct {
		make  func() *agent.Agent
		calls int64 // of models that the flow needs
	}{
		"sequence": {func() *agent.Agent {
			return mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "flow"}, child("a"), child("b"), child("c")))
		}, 3},
		"parallel": {func() *agent.Agent {
			return mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "flow"}, child("a"), child("b"), child("c")))
		}, 3},
		"tool": {func() *agent.Agent { return agentThatCallsTool(t, mustBuildTool(t, child("a"))) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			step := questionStep("?")
			step.Budget = newLedger(c.calls)
			_, _, err := runAndDescribe(t.Context(), c.make(), agent.Invocation{Step: step})
			require.NoError(t, err)
			require.Equal(t, c.calls, step.Budget.Used().ModelCalls)

			for less := range c.calls {
				step.Budget = newLedger(less)
				_, _, err = runAndDescribe(t.Context(), c.make(), agent.Invocation{Step: step})
				require.Equal(t, failure.PolicyBudget, failure.ModeOf(err), "%v", err)
				require.LessOrEqual(t, step.Budget.Used().ModelCalls, less)
			}
		})
	}
}
