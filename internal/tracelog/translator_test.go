package tracelog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/tracelog"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// eventNames translates the events of one trace and returns the names of the log events, including those for due
// warnings. It returns nil if a log event is incomplete.
func eventNames(events ...*troupev1.Event) (lines []string) {
	var t tracelog.Translator
	for _, e := range events {
		e.TraceId = "t"
		logged := t.Translate(e)
		for _, w := range t.Spending.DueWarnings() {
			logged = append(logged, t.Translate(&troupev1.Event{TraceId: "t", Payload: &troupev1.Event_Warning{Warning: w}})...)
		}
		for _, event := range logged {
			if event.TraceID != "t" || event.Message == "" {
				return nil
			}
			lines = append(lines, string(event.Name))
		}
	}
	return lines
}

func toolFinished(status troupev1.ToolStatus) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
		Status:   status,
		Duration: durationpb.New(time.Second),
	}}}
}

func stepFinished(step int32, sequence int64) *troupev1.Event {
	return &troupev1.Event{
		Step:    step,
		Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: &troupev1.StepResult{Sequence: sequence}}},
	}
}

func TestTranslate_ReturnsTheLogEventsOfATrace(t *testing.T) {
	require.Equal(t, []string{
		"execution_start", "memory_query", "approval_received", "approval_timeout", "plan_created", "route_decision", "route_decision",
		"tool_call_start", "tool_call_complete", "tool_call_error", "approval_requested",
		"budget_updated", "memory_store", "budget_updated", "budget_updated", "budget_updated", "budget_warning", "budget_updated", "budget_exceeded",
		"execution_error", "budget_exceeded",
	}, eventNames(
		&troupev1.Event{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{Text: "what?", Answers: []*troupev1.CallAnswer{
			{Id: "1"},
			{Id: "2", Late: true},
		}}}},
		&troupev1.Event{Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Budget: &troupev1.TurnBudget{Steps: 5}}}},
		&troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{}}},
		&troupev1.Event{Step: 1, Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{}}},
		&troupev1.Event{Step: 1, Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "so"}}},
		&troupev1.Event{Step: 1, Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{}}},
		toolFinished(troupev1.ToolStatus_TOOL_STATUS_SUCCESS), toolFinished(troupev1.ToolStatus_TOOL_STATUS_NOT_FOUND),
		&troupev1.Event{
			Step:    1,
			Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: &troupev1.PendingCall{Needs: troupev1.CallNeed_CALL_NEED_APPROVAL}}},
		},
		&troupev1.Event{
			Step:    1,
			Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: &troupev1.PendingCall{Needs: troupev1.CallNeed_CALL_NEED_RESULT}}},
		},
		stepFinished(1, 7), stepFinished(2, 0), stepFinished(3, 0), stepFinished(4, 0), stepFinished(5, 0),
		&troupev1.Event{Step: 5, Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: "BUDGET_EXCEEDED", Message: "limits.tokens: more"}}},
		&troupev1.Event{Step: 5, Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: "BUDGET", Message: "limits.tokens: of a remote turn"}}},
		&troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{Failure: grpcfailure.ToProto(failure.New(failure.PolicyBudget,
			"turn", "too much"))}}},
	))
	planner := stepFinished(0, 0)
	planner.GetStepFinished().Result.Tasks = []*troupev1.PlannedTask{{Agent: "a", Text: "b"}}
	require.Equal(t, []string{"plan_created"}, eventNames(planner))
	require.Equal(t, []string{"execution_complete"}, eventNames(&troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{}}}))
}
