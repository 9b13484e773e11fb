package request

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// A target that led to a request is refused, with the whole chain. The list of ancestors is bounded.
// Req: OC-29
func TestLabels_RejectATargetAmongTheAncestors(t *testing.T) {
	l := Labels{}.WithAncestor("desk").WithAncestor("tax").WithAncestor("tax").WithAncestor("law")
	require.Equal(t, []string{"desk", "tax", "law"}, l.Ancestors)
	require.NoError(t, l.CheckAncestry("archive"))
	err := l.CheckAncestry("tax")
	require.Equal(t, failure.PolicyBudget, failure.ModeOf(err))
	require.ErrorContains(t, err, "desk > tax > law > tax")

	before := slices.Clone(l.Ancestors)
	_, _ = l.WithAncestor("a"), l.WithAncestor("b")
	require.Equal(t, before, l.Ancestors)
	for i := range 2 * maxAncestors {
		l = l.WithAncestor(strconv.Itoa(i))
	}
	require.Len(t, l.Ancestors, maxAncestors)
	require.Equal(t, l.Ancestors, Labels{}.WithDefaultsFrom(l).Ancestors, "a continued turn has them too")
	require.Equal(t, l.Ancestors, DecodeLabels(l.Encode()).Ancestors)
}
