package interact

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestBudgetFlags_LowerTheLimits(t *testing.T) {
	none, err := budgetFlags{}.limits()
	require.NoError(t, err)
	require.Nil(t, none, "what the workflow allows")
	require.Empty(t, budgetFlagsToRepeat(none))

	asked, err := budgetFlags{Budget: []string{"depth=2", "tokens=1000", "cost=0.05"}}.limits()
	require.NoError(t, err)
	want := budget.Unbounded()
	want.Tokens, want.Cost, want.Depth = 1000, 50_000, 2
	require.Equal(t, want, wire.LimitsFromProto(asked))
	require.Equal(t, " --budget 'tokens=1000' --budget 'cost=0.05' --budget 'depth=2'", budgetFlagsToRepeat(asked), "so it is asked for again")
}

func TestBudgetFlags_RejectInvalidAmounts(t *testing.T) {
	for flag, why := range map[string]string{
		"words=5":           `want KIND=NUMBER, such as tokens=20000, and not "words=5"; the kinds are iterations, modelCalls, toolCalls, tokens, cost, fanOut, depth`,
		"tokens":            `tokens: "" is not a whole number from 1 to 1000000000`,
		"tokens=0":          `tokens: "0" is not a whole number`,
		"tokens=1.5":        `tokens: "1.5" is not a whole number`,
		"tokens=1000000001": `tokens: "1000000001" is not a whole number`,
		"cost=free":         `cost: "free" is not a number of US dollars from 0.000001 to 1000000, such as 0.05`,
		"cost=NaN":          `cost: "NaN" is not`,
		"cost=0":            `cost: "0" is not`,
		"cost=1e9":          `cost: "1e9" is not`,
	} {
		_, err := budgetFlags{Budget: []string{flag}}.limits()
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), flag)
		require.ErrorContains(t, err, "--budget: "+why, flag)
	}
	_, err := budgetFlags{Budget: []string{"tokens=5", "tokens=6"}}.limits()
	require.ErrorContains(t, err, "tokens is given twice")
}
