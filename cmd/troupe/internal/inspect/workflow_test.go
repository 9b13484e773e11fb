package inspect

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestPrintWorkflow_PrintsPolicies(t *testing.T) {
	var out strings.Builder
	printWorkflow(&out, &troupev1.Workflow{Name: "w", Entry: "desk", MaxSteps: 20, Steps: []*troupev1.WorkflowStep{
		{Name: "desk", Choose: &troupev1.ChoicePolicy{
			Strategy:   troupev1.RoutingStrategy_ROUTING_STRATEGY_PRIORITY,
			Priorities: map[string]int32{"tax": 1, "law": 10},
		}},
		{Name: "law", Agent: "law", End: true, Tools: &troupev1.ChoicePolicy{
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY,
			Needs:    []string{"docs", "web"},
		}},
		{Name: "tax", Agent: "tax", End: true, Tools: &troupev1.ChoicePolicy{
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_MANUAL,
			Names:    []string{"clock"},
		}},
	}})
	require.Contains(t, out.String(), "\ndesk: chooses by priority (law 10; tax 1)\n")
	require.Contains(t, out.String(), "\nlaw: agent law, tools by capability (needs docs web), end\n")
	require.Contains(t, out.String(), "\ntax: agent tax, tools by manual (clock), end\n")
}

func TestPrintWorkflow_PrintsTasksAndPlans(t *testing.T) {
	var out strings.Builder
	printWorkflow(&out, &troupev1.Workflow{Name: "w", Entry: "plan", MaxSteps: 20, Steps: []*troupev1.WorkflowStep{
		{
			Name: "plan", Agent: "planner", Task: "Part\nthe work.", Expects: "Tasks.", Constraints: []string{"few", "small"},
			Plan:  &troupev1.WorkflowPlan{Agents: []string{"search", "calc"}, Max: 8, Parallel: true, Continues: true},
			Edges: []*troupev1.WorkflowEdge{{Step: "sum", Kind: troupev1.WorkflowEdgeKind_WORKFLOW_EDGE_KIND_NEXT}},
		},
		{Name: "sum", Agent: "writer", End: true, Plan: nil},
	}})
	require.Contains(t, out.String(), `
plan: agent planner
│  task: Part the work.
│  expects: Tasks.
│  constraints: few; small
│  plans at most 8 tasks for search, calc, at once, continues when one fails
└─ next      → sum
`)
}

func TestPrintWorkflow_FitsATerminal(t *testing.T) {
	var out strings.Builder
	printWorkflow(&out, &troupev1.Workflow{Name: "w", Entry: "split", MaxSteps: 20, HistoryWindow: 10, Steps: []*troupev1.WorkflowStep{
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
timeout  the default of the orchestrator
history  the last 10 messages

split
├─ branch    → a
├─ branch    → b
└─ join      → sum

  a: agent x, in a branch of split, at most 2 times, 3 retries
  ├─ then      → a  long long`)
	require.Contains(t, out.String(), "\n  └─ next      → sum\n\n  b: agent y, in a branch of split, continues when it fails\n\nsum: agent z, end\n")
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(line)), terminalWidth)
	}
}

func TestPrintWorkflow_PrintsTurnLimits(t *testing.T) {
	var out strings.Builder
	printWorkflow(&out, &troupev1.Workflow{
		Name: "w", Entry: "a", Description: "Asks.", MaxSteps: 20, HistoryWindow: 5, Timeout: durationpb.New(2 * time.Minute),
		Limits: wire.LimitsToProto(budget.Default()),
		Steps:  []*troupev1.WorkflowStep{{Name: "a", Agent: "x", End: true, Instances: "weighted (v2 10)"}},
	})
	require.Equal(t, `workflow w: begins with a, at most 20 steps
Asks.
timeout  2m0s
history  the last 5 messages
limits   steps 20, iterations 200, modelCalls 200, toolCalls 500
         tokens 5000000, cost 100, fanOut 16, depth 4
policy   block

a: agent x, instances by weighted (v2 10), end
`, out.String())
}
