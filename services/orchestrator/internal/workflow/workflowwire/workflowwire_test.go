package workflowwire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

func TestDescribeInstances_ReturnsReadableText(t *testing.T) {
	for want, p := range map[string]selection.Policy{
		"":                                   {},
		"load_balanced":                      {Strategy: selection.LoadBalanced},
		"weighted (v1 20, v2 10)":            {Strategy: selection.Weighted, Weights: map[string]int{"v2": 10, "v1": 20}},
		"priority (v2 7)":                    {Strategy: selection.Priority, Priorities: map[string]int{"v2": 7}},
		"manual (x-1, else sticky)":          {Strategy: selection.Manual, Instance: "x-1", Fallback: selection.Sticky},
		"capability (needs legal documents)": {Strategy: selection.Capability, Needs: []string{"legal", "documents"}},
	} {
		require.Equal(t, want, describeInstances(p))
	}
	require.Empty(t, describeInstances(selection.Policy{Strategy: selection.RoundRobin}))
}
