package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/budget"
)

func TestLimits_RoundTrip(t *testing.T) {
	none := budget.Default()
	none.ToolCalls, none.Tokens, none.Policy = 0, budget.Unlimited, budget.Warn
	for _, l := range []budget.Limits{budget.Default(), budget.Unbounded(), none} {
		require.Equal(t, l, LimitsFromProto(LimitsToProto(l)))
	}
	require.Equal(t, budget.Unbounded(), LimitsFromProto(nil))
	require.Nil(t, LedgerFromProto(nil))
}
