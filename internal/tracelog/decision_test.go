package tracelog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/tracelog"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestDecisionFromEvent_ReturnsTheRecordOfAnEvent(t *testing.T) {
	agent := &troupev1.Event{
		Sequence: 3, TraceId: "t", SessionId: "s", Turn: 2, Time: &timestamppb.Timestamp{Seconds: 9}, Stage: troupev1.Stage_STAGE_ROUTE,
		Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{
			Target: "research", Reason: "it always follows", Alternatives: []string{"b"}, Confidence: 0.8, Fallback: "c", Step: "look",
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED,
		}},
	}
	want := &troupev1.Decision{
		RecordId: "t-3", Time: agent.GetTime(), TraceId: "t", Type: troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION, Stage: agent.GetStage(),
		Target: "research", Reason: "it always follows", Alternatives: []string{"b"}, Confidence: 0.8,
		Metadata: map[string]string{"session_id": "s", "turn": "2", "strategy": "learned", "fallback": "c", "route": "look"},
	}
	require.Empty(t, cmp.Diff(want, tracelog.DecisionFromEvent(agent), protocmp.Transform()))

	instance := &troupev1.Event{
		Sequence: 4, TraceId: "t", SessionId: "s", Turn: 2, Step: 1, Attempt: 2, Agent: "research", InstanceId: "r-2", Time: agent.GetTime(),
		Stage: troupev1.Stage_STAGE_EXECUTE,
		Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{Version: "v1", Choice: &troupev1.InstanceChoice{
			Strategy: "sticky", Reason: "r-2 stands in", Confidence: 0.5, Type: troupev1.DecisionType_DECISION_TYPE_FALLBACK, Counter: 7,
			Rejected: []*troupev1.RejectedInstance{{InstanceId: "r-1", Why: "lost"}, {InstanceId: "r-3", Why: "full"}},
		}}},
	}
	want = &troupev1.Decision{
		RecordId: "t-4", Time: agent.GetTime(), TraceId: "t", Type: troupev1.DecisionType_DECISION_TYPE_FALLBACK, Stage: instance.GetStage(),
		Target: "r-2", Reason: "r-2 stands in", Confidence: 0.5,
		Metadata: map[string]string{
			"session_id": "s", "turn": "2", "strategy": "sticky", "step": "1", "attempt": "2", "agent": "research", "version": "v1", "counter": "7",
			"rejected": "r-1 lost, r-3 full",
		},
	}
	require.Empty(t, cmp.Diff(want, tracelog.DecisionFromEvent(instance), protocmp.Transform()))
	require.Nil(t, tracelog.DecisionFromEvent(&troupev1.Event{Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{}}}),
		"events from before choices were published")
	require.Nil(t, tracelog.DecisionFromEvent(&troupev1.Event{Payload: &troupev1.Event_Plan{}}))
}

// The record of a selection by strategy contains its input and the rejected candidates. The record of a selection
// of tools names the step.
func TestDecisionFromEvent_ReturnsTheInputAndTheRejectedCandidates(t *testing.T) {
	tools := &troupev1.Event{
		Sequence: 5, TraceId: "t", SessionId: "s", Turn: 2, Step: 1, Attempt: 2, Agent: "research", InstanceId: "r-2", Time: &timestamppb.Timestamp{Seconds: 9},
		Stage: troupev1.Stage_STAGE_EXECUTE,
		Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{
			Target: "search", Reason: "search has all that is needed: docs, web", Alternatives: []string{"fetch"}, Confidence: 1,
			Type: troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION, Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY,
			Rejected: []*troupev1.RejectedCandidate{{Id: "clock", Why: "unfit"}, {Id: "mail", Why: "unfit"}},
			Input:    &troupev1.RoutingInput{Task: "look", Constraints: []string{"docs", "web"}, Counter: 3},
		}},
	}
	want := &troupev1.Decision{
		RecordId: "t-5", Time: tools.GetTime(), TraceId: "t", Type: troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION, Stage: tools.GetStage(),
		Target: "search", Reason: "search has all that is needed: docs, web", Alternatives: []string{"fetch"}, Confidence: 1,
		Metadata: map[string]string{
			"session_id": "s", "turn": "2", "strategy": "capability", "task": "look", "needs": "docs, web", "counter": "3",
			"step": "1", "attempt": "2", "agent": "research", "instance": "r-2", "rejected": "clock unfit, mail unfit",
		},
	}
	require.Empty(t, cmp.Diff(want, tracelog.DecisionFromEvent(tools), protocmp.Transform()))
}
