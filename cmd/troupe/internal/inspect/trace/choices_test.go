package trace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// choosingTurn returns the events of a turn that records a choice of an agent, an instance and tools.
func choosingTurn() []*troupev1.Event {
	return []*troupev1.Event{
		routingDecision(&troupev1.RoutingDecision{
			Target: "law", Step: "law", Reason: "law has all that is needed: german", Confidence: 1, Choice: 1, Alternatives: []string{"tax"}, Fallback: "tax",
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY, Type: troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION,
			Rejected: []*troupev1.RejectedCandidate{{Id: "mail", Why: "paused"}},
		}),
		atAttempt(1, 1, "law-1", instanceChosen(&troupev1.InstanceChoice{
			Strategy: "round_robin", Reason: "law-1 is the only one that can take it",
			Confidence: 1,
		})),
		atAttempt(1, 1, "law-1", &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{
			Target: "search", Reason: "search has all that is needed: docs; 1 more have some of it", Confidence: 1, Alternatives: []string{"fetch"},
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY, Type: troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION,
			Rejected: []*troupev1.RejectedCandidate{{Id: "clock", Why: "unfit"}},
		}}}),
	}
}

func TestExplain_PrintsChoicesByStrategy(t *testing.T) {
	out := runOnTrace(t, &troupev1.Trace{Text: "What?"}, choosingTurn(), "explain")
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
	require.Contains(t, runOnTrace(t, &troupev1.Trace{Text: "What?"}, choosingTurn(), "describe", "trace"),
		"tools search, CAPABILITY: search has all that is needed: docs")
}
