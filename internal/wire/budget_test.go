package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/budget"
)

func TestLimits_RoundTrip(t *testing.T) {
	none := budget.Default()
	none.ToolCalls, none.Tokens, none.Policy = 0, budget.Unlimited, budget.Warn
	for _, l := range []budget.Limits{budget.Default(), budget.Open(), none} {
		require.Equal(t, l, LimitsFromProto(LimitsToProto(l)))
	}
	require.Equal(t, budget.Open(), LimitsFromProto(nil))
	require.Nil(t, LedgerFromProto(nil))
}
