package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

func TestAgent_RemoteTurnGetsShareOfBudget(t *testing.T) {
	used := budget.Amounts{Iterations: 2, ModelCalls: 3, ToolCalls: 4, Tokens: 5000, Cost: 6, FanOut: 7}
	var meshes []*fakeMesh
	var remotes []*agent.Agent
	for _, name := range []string{"one", "two"} {
		m := &fakeMesh{events: []*troupev1.Event{turnResult(&troupev1.TurnResult{
			Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Text: "Found.", Used: wire.UsedToProto(used),
		})}}
		remote, err := serveMesh(t, m).Agent("research", agent.Config{Name: name})
		require.NoError(t, err)
		meshes, remotes = append(meshes, m), append(remotes, remote)
	}
	before, err := agent.New(agent.Config{Name: "before", Model: scripted.New(scripted.Say("It is red."))})
	require.NoError(t, err)
	beside, err := flow.Parallel(agent.Config{Name: "beside"}, remotes...)
	require.NoError(t, err)
	team, err := flow.Sequence(agent.Config{Name: "team"}, before, beside)
	require.NoError(t, err)

	inv := agent.Invocation{Step: newStep()}
	inv.Step.Budget = budget.New(budget.Default(), 2)
	_, _, err = runAgent(t.Context(), team, inv)
	require.NoError(t, err)
	for _, m := range meshes {
		require.Len(t, m.requests, 1)
		req := m.requests[0]
		require.EqualValues(t, 3, req.GetParent().GetDepth())
		require.EqualValues(t, budget.DefaultDepth, req.GetBudget().GetDepth())
		require.Nil(t, req.GetBudget().FanOut, "its remote turns are its own")
		require.LessOrEqual(t, req.GetBudget().GetTokens(), int64(budget.DefaultTokens/2))
		require.Greater(t, req.GetBudget().GetTokens(), int64(40_000), "whichever of the two has ended")
	}
	require.Equal(t, budget.Amounts{Iterations: 5, ModelCalls: 7, ToolCalls: 8, Tokens: 10_000, Cost: 12, FanOut: 2}, inv.Step.Budget.Used())
}

// If the parent turn has no budget left, the remote agent is not called.
func TestAgent_NotCalledWhenBudgetIsUsedUp(t *testing.T) {
	m := &fakeMesh{events: flowEvents()}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{})
	require.NoError(t, err)
	for kind, change := range map[budget.Kind]func(*budget.Limits){
		budget.Depth:  func(l *budget.Limits) { l.Depth = 0 },
		budget.FanOut: func(l *budget.Limits) { l.FanOut = 0 },
		budget.Tokens: func(l *budget.Limits) { l.Tokens = 0 },
	} {
		limits := budget.Default()
		change(&limits)
		inv := agent.Invocation{Step: newStep()}
		inv.Step.Budget = budget.New(limits, 0)
		_, _, err := runAgent(t.Context(), remote, inv)
		require.Equal(t, failure.PolicyBudget, failure.ModeOf(err))
		require.ErrorContains(t, err, "limits."+string(kind))
	}
	require.Empty(t, m.requests)
}

// If the result of a remote turn does not name the used budget, the usage in its events is counted.
func TestAgent_CountsUsageFromEvents(t *testing.T) {
	events := flowEvents()
	m := &fakeMesh{events: append(events[:len(events)-1], turnResult(&troupev1.TurnResult{
		Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Text: "Found.", Usage: &troupev1.Usage{InputTokens: 9, ModelCalls: 2},
	}))}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{})
	require.NoError(t, err)
	inv := agent.Invocation{Step: newStep()}
	inv.Step.Budget = budget.New(budget.Default(), 0)
	_, _, err = runAgent(t.Context(), remote, inv)
	require.NoError(t, err)
	require.Equal(t, budget.Amounts{Iterations: 2, ModelCalls: 1, ToolCalls: 1, Tokens: 3, FanOut: 1}, inv.Step.Budget.Used())
}
