package trace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func instanceChosen(c *troupev1.InstanceChoice) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{Choice: c}}}
}

// failingTurn returns the events of a turn that waits for an instance, loses an attempt, and takes a default
// route.
func failingTurn() []*troupev1.Event {
	lost := &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_SYSTEM_NETWORK, Message: "the worker went\naway"}
	broken := &troupev1.StepResult{Failure: &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC, Message: "no idea"}}
	return []*troupev1.Event{
		{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{}}},
		routingDecision(&troupev1.RoutingDecision{
			Target: "research", Reason: "coordinator chose research", Confidence: 0.8, Alternatives: []string{"clarification"}, Fallback: "clarification",
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED,
		}),
		atAttempt(1, 1, "", warningEvent("WAITING", "no instance of agent research takes the step yet")),
		atAttempt(1, 1, "research-1", instanceChosen(&troupev1.InstanceChoice{
			Strategy: "round_robin", Reason: "research-1 is next in turn of 2", Confidence: 0.5, Fallback: "research-2", Alternatives: []string{"research-2"},
			Rejected: []*troupev1.RejectedInstance{{InstanceId: "research-3", Why: "full"}, {
				InstanceId: "research-4", Why: "unresponsive",
				Detail: "no answer",
			}},
		})),
		atAttempt(1, 1, "research-1", modelCalled(1, 1200, 80, 12300)),
		atAttempt(1, 1, "research-1", &troupev1.Event{Payload: &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{Failure: lost}}}),
		atAttempt(1, 2, "research-2", instanceChosen(&troupev1.InstanceChoice{
			Strategy: "sticky", Reason: "research-2 stands in for research-1", Confidence: 0.5, Type: troupev1.DecisionType_DECISION_TYPE_FALLBACK,
		})),
		atAttempt(1, 2, "research-2", &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: broken}}}),
	}
}

const wantExplained = `trace  0af7651916cd43dd8448eb211c80319c
asked  What?
state  running

agent     research: learned, confidence 0.80
            because coordinator chose research
            next would be clarification
            could have been clarification
waiting   no instance of agent research takes the step yet
instance  research-1, step 1, attempt 1: round_robin, confidence 0.50
            because research-1 is next in turn of 2
            next would be research-2
            could have been research-2
            not research-3: full
            not research-4: unresponsive (no answer)
lost      research-1, step 1, attempt 1
            system_network: the worker went\naway
instance  research-2, step 1, attempt 2: sticky, a fallback, confidence 0.50
            because research-2 stands in for research-1
failed    research, step 1, attempt 2
            agent_logic: no idea
`

func TestExplain_PrintsEachDecisionWithItsReasons(t *testing.T) {
	out := runOnTrace(t, &troupev1.Trace{Text: "What?"}, failingTurn(), "explain")
	require.Empty(t, cmp.Diff(wantExplained, out))
	out = runOnTrace(t, &troupev1.Trace{Text: "What?"}, failingTurn(), "explain", "--json")
	require.Equal(t, 2, strings.Count(out, `"choice"`))
	require.NotContains(t, out, "modelCall")
}
