package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// choosing are the events of a turn that chooses an agent by strategy, and its tools.
func choosing() []*troupev1.Event {
	return []*troupev1.Event{
		routed(&troupev1.RoutingDecision{
			Target: "law", Step: "law", Reason: "law has all that is needed: german", Confidence: 1, Choice: 1, Alternatives: []string{"tax"}, Fallback: "tax",
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY, Type: troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION,
			Rejected: []*troupev1.RejectedCandidate{{Id: "mail", Why: "paused"}},
		}),
		at(1, 1, "law-1", chosen(&troupev1.InstanceChoice{Strategy: "round_robin", Reason: "law-1 is the only one that can take it", Confidence: 1})),
		at(1, 1, "law-1", &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{
			Target: "search", Reason: "search has all that is needed: docs; 1 more have some of it", Confidence: 1, Alternatives: []string{"fetch"},
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY, Type: troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION,
			Rejected: []*troupev1.RejectedCandidate{{Id: "clock", Why: "unfit"}},
		}}}),
	}
}

func TestExplain_PrintsChoicesByStrategy(t *testing.T) {
	out := toldOf(t, &troupev1.Trace{Text: "What?"}, choosing(), "explain")
	_, decisions, _ := strings.Cut(out, "\n\n")
	require.Empty(t, cmp.Diff(`agent     law: capability, confidence 1.00
            because law has all that is needed: german
            next would be tax
            could have been tax
            not mail: paused
instance  law-1, step 1, attempt 1: round_robin, confidence 1.00
            because law-1 is the only one that can take it
tools     search, step 1, attempt 1: capability, confidence 1.00
            because search has all that is needed: docs; 1 more have some of it
            and fetch
            not clock: unfit
`, decisions))
	require.Contains(t, toldOf(t, &troupev1.Trace{Text: "What?"}, choosing(), "describe", "trace"), "tools search, CAPABILITY: search has all that is needed: docs")
}

func TestDrawWorkflow_ShowsHowAStepChooses(t *testing.T) {
	var out strings.Builder
	drawWorkflow(&out, &troupev1.Workflow{Name: "w", Entry: "desk", MaxSteps: 20, Steps: []*troupev1.WorkflowStep{
		{Name: "desk", Choose: &troupev1.ChoicePolicy{Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_PRIORITY, Priorities: map[string]int32{"tax": 1, "law": 10}}},
		{Name: "law", Agent: "law", End: true, Tools: &troupev1.ChoicePolicy{Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY, Needs: []string{"docs", "web"}}},
		{Name: "tax", Agent: "tax", End: true, Tools: &troupev1.ChoicePolicy{Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_MANUAL, Names: []string{"clock"}}},
	}})
	require.Contains(t, out.String(), "\ndesk: chooses by priority (law 10; tax 1)\n")
	require.Contains(t, out.String(), "\nlaw: agent law, tools by capability (needs docs web), end\n")
	require.Contains(t, out.String(), "\ntax: agent tax, tools by manual (clock), end\n")
}

func TestLabels_SayAgainWhatIsNeeded(t *testing.T) {
	require.Equal(t, " --profile fast --need law --need tax --metadata 'a=b'",
		labels{Profile: "fast", Need: []string{"law", "tax"}, Metadata: map[string]string{"a": "b"}}.again())
	require.Equal(t, "search (docs, web), clock", toolbox([]*troupev1.InstanceTool{{Name: "search", Capabilities: []string{"docs", "web"}}, {Name: "clock"}}))
}
