package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

func TestExecuteStep_EnforcesTheBudget(t *testing.T) {
	s := newWorkerEnv(t)
	spent := execution.Usage{InputTokens: 50, OutputTokens: 10, CostMicros: 7}
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(
		scripted.Reply{Deltas: []string{"Good day."}, Usage: spent},
		scripted.Reply{Deltas: []string{"Good night."}, Usage: spent},
	)})
	want := wire.UsedToProto(budget.Amounts{Iterations: 1, ModelCalls: 1, Tokens: 60, Cost: 7})

	_, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	require.Nil(t, result.GetFailure())
	require.Nil(t, result.GetUsed(), "the usage was not requested")

	req := s.beginTurn(t, "a", "s2")
	req.Budget = wire.LimitsToProto(budget.Default())
	_, result = readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure())
	require.Equal(t, want.String(), result.GetUsed().String())

	none := budget.Default()
	none.Tokens = 0
	req = s.beginTurn(t, "a", "s3")
	req.Budget = wire.LimitsToProto(none)
	_, result = readStep(t, r.execute(t.Context(), t, req))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_POLICY_BUDGET, result.GetFailure().GetMode())
	require.Equal(t, "tokens", result.GetFailure().GetFacts()["budget"])
	require.NotNil(t, result.GetUsed())
	found, messages := s.storedSession(t, "s3")
	require.Equal(t, "t1", found.OpenTurn)
	require.Len(t, messages, 1, "nothing is committed")
}
