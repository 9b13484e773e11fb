package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestDrawWorkflow_FitsATerminal(t *testing.T) {
	var out strings.Builder
	drawWorkflow(&out, &troupev1.Workflow{Name: "w", Entry: "split", MaxSteps: 20, Steps: []*troupev1.WorkflowStep{
		{Name: "split", Edges: []*troupev1.WorkflowEdge{
			{Step: "a", Kind: troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_BRANCH},
			{Step: "b", Kind: troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_BRANCH},
			{Step: "sum", Kind: troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_JOIN},
		}},
		{Name: "a", Agent: "x", Fork: "split", Limit: 2, Retries: 3, Edges: []*troupev1.WorkflowEdge{
			{Step: "a", Kind: troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_THEN, Condition: strings.Repeat("long ", 40)},
			{Step: "sum", Kind: troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_NEXT},
		}},
		{Name: "b", Agent: "y", Fork: "split", Continues: true},
		{Name: "sum", Agent: "z", End: true},
	}})
	require.Contains(t, out.String(), `workflow w: begins with split, at most 20 steps

split
├─ branch    → a
├─ branch    → b
└─ join      → sum

  a: agent x, in a branch of split, at most 2 times, 3 retries
  ├─ then      → a  long long`)
	require.Contains(t, out.String(), "\n  └─ next      → sum\n\n  b: agent y, in a branch of split, goes on when it fails\n\nsum: agent z, end\n")
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(line)), width)
	}
}
