// Package tracelog converts the events of a trace to log events and records of routing decisions.
package tracelog

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/telemetry/structured"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Translator converts the events of one trace to structured log events, so that all processes log them in the same
// way. The zero Translator is ready for use. It is safe for concurrent use.
type Translator struct {
	Spending spending.Tally // tally of the events so far
}

// Translate returns the log events for an event of the trace. Most events have none. Log events contain no text of
// models or tools, except messages of failures.
func (t *Translator) Translate(e *troupev1.Event) []structured.Event {
	t.Spending.AddEvent(e)
	events := t.eventsFromPayload(e)
	for i := range events {
		events[i].TraceID = e.GetTraceId()
		if d := events[i].Data; d != nil {
			d["session_id"], d["turn"] = e.GetSessionId(), e.GetTurn()
			if e.GetStep() > 0 {
				d["step"], d["attempt"], d["agent"], d["instance_id"] = e.GetStep(), e.GetAttempt(), e.GetAgent(), e.GetInstanceId()
			}
		}
	}
	return events
}

func (t *Translator) eventsFromPayload(e *troupev1.Event) []structured.Event {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		return turnStartedEvents(p.TurnStarted)
	case *troupev1.Event_Plan:
		return singleEvent(structured.PlanCreated, "the plan of the turn was created", map[string]any{
			"workflow": p.Plan.GetWorkflow(), "steps_count": p.Plan.GetStepsCount(),
		})
	case *troupev1.Event_RoutingDecision:
		d := p.RoutingDecision
		message := "an agent was selected"
		if d.GetType() == troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION {
			message = "tools were selected"
		}
		return singleEvent(structured.RouteDecision, message, map[string]any{
			"target": d.GetTarget(), "reason": d.GetReason(), "strategy": lowerEnumName(d.GetStrategy().String(), "ROUTING_STRATEGY_"),
			"decision_type": lowerEnumName(d.GetType().String(), "DECISION_TYPE_"), "confidence": d.GetConfidence(),
		})
	case *troupev1.Event_StepStarted:
		c := p.StepStarted.GetChoice()
		return singleEvent(structured.RouteDecision, "an instance was selected", map[string]any{
			"target": e.GetInstanceId(), "reason": c.GetReason(), "strategy": c.GetStrategy(),
			"decision_type": lowerEnumName(c.GetType().String(), "DECISION_TYPE_"), "confidence": c.GetConfidence(),
		})
	case *troupev1.Event_ToolCallStarted:
		return singleEvent(structured.ToolCallStart, "a tool call started", map[string]any{
			"tool":    p.ToolCallStarted.GetTool(),
			"call_id": p.ToolCallStarted.GetCallId(),
		})
	case *troupev1.Event_ToolCallFinished:
		return toolEndedEvents(p.ToolCallFinished)
	case *troupev1.Event_ToolCallPending:
		return approvalRequestedEvents(p.ToolCallPending.GetCall())
	case *troupev1.Event_StepFinished:
		events := t.budgetUpdatedEvents()
		if s := p.StepFinished.GetResult().GetSequence(); s > 0 && p.StepFinished.GetResult().GetFailure() == nil {
			events = append(events, structured.Event{
				Name: structured.MemoryStore, Message: "the messages of a step were committed",
				Data: map[string]any{"sequence": s},
			})
		}
		if n := len(p.StepFinished.GetResult().GetTasks()); n > 0 {
			events = append(events, structured.Event{Name: structured.PlanCreated, Message: "a planner created tasks", Data: map[string]any{"steps_count": n}})
		}
		return events
	case *troupev1.Event_Warning:
		return budgetWarningEvents(e, p.Warning)
	case *troupev1.Event_TurnResult:
		return turnEndedEvents(p.TurnResult)
	}
	return nil
}

func singleEvent(name structured.EventName, message string, data map[string]any) []structured.Event {
	return []structured.Event{{Name: name, Message: message, Data: data}}
}

func lowerEnumName(name, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}

func turnStartedEvents(p *troupev1.TurnStarted) []structured.Event {
	events := []structured.Event{
		{Name: structured.ExecutionStart, Message: "a turn started", Data: map[string]any{
			"goal": p.GetText(), "target": p.GetTarget(), "workers_available": p.GetInstancesReady(),
		}},
		{Name: structured.MemoryQuery, Message: "the history of the session was read", Data: map[string]any{"turn_id": p.GetTurnId()}},
	}
	for _, a := range p.GetAnswers() {
		name, message := structured.ApprovalReceived, "a waiting call was answered"
		if a.GetLate() {
			name, message = structured.ApprovalTimeout, "a waiting call was answered too late, which counts as a denial"
		}
		events = append(events, structured.Event{Name: name, Message: message, Data: map[string]any{
			"call_id": a.GetId(), "verdict": lowerEnumName(a.GetVerdict().String(), "CALL_VERDICT_"), "by": a.GetBy(),
		}})
	}
	return events
}

func approvalRequestedEvents(call *troupev1.PendingCall) []structured.Event {
	if call.GetNeeds() != troupev1.CallNeed_CALL_NEED_APPROVAL {
		return nil
	}
	return singleEvent(structured.ApprovalRequested, "a tool call waits for an approval", map[string]any{
		"call_id": call.GetId(), "tool": call.GetTool(), "risk": call.GetRisk(), "reason": call.GetReason(),
	})
}

func toolEndedEvents(p *troupev1.ToolCallFinished) []structured.Event {
	name, message := structured.ToolCallComplete, "a tool call finished"
	if p.GetStatus() != troupev1.ToolStatus_TOOL_STATUS_SUCCESS && p.GetStatus() != troupev1.ToolStatus_TOOL_STATUS_INPUT_REQUIRED {
		name, message = structured.ToolCallError, "a tool call failed"
	}
	return singleEvent(name, message, map[string]any{
		"tool": p.GetTool(), "call_id": p.GetCallId(), "status": lowerEnumName(p.GetStatus().String(), "TOOL_STATUS_"),
		"duration_ms": milliseconds(p.GetDuration()),
	})
}

func turnEndedEvents(p *troupev1.TurnResult) []structured.Event {
	data := map[string]any{
		"outcome": lowerEnumName(p.GetOutcome().String(), "TURN_OUTCOME_"), "duration_ms": milliseconds(p.GetDuration()),
		"steps": p.GetMetrics().GetTotalSteps(),
	}
	if p.GetFailure() == nil {
		return singleEvent(structured.ExecutionComplete, "a turn has ended", data)
	}
	mode := grpcfailure.FromProto(p.GetFailure()).Mode
	data["mode"], data["reason"] = string(mode), p.GetFailure().GetMessage()
	events := singleEvent(structured.ExecutionError, "a turn failed", data)
	if mode == failure.PolicyBudget {
		events = append(events, structured.Event{
			Name: structured.BudgetExceeded, Message: "a turn exhausted its budget",
			Data: map[string]any{"reason": p.GetFailure().GetMessage()},
		})
	}
	return events
}

// budgetUpdatedEvents returns the log event with the budget used after a step. The amounts are one text, because a
// field named "tokens" would be redacted as a secret.
func (t *Translator) budgetUpdatedEvents() []structured.Event {
	b := t.Spending.Budget()
	if b.GetSteps() == 0 {
		return nil
	}
	return singleEvent(structured.BudgetUpdated, "a turn used another step of its budget", map[string]any{
		"used": t.Spending.FinishedSteps(), "budget": b.GetSteps(), "of": "steps", "amounts": spending.DescribeUsed(wire.UsedToProto(t.Spending.Used()),
			b.GetLimits()),
	})
}

// budgetWarningEvents returns the log events for a warning about the budget.
func budgetWarningEvents(e *troupev1.Event, w *troupev1.Warning) []structured.Event {
	data := map[string]any{"of": spending.WarningKind(w), "reason": w.GetMessage()}
	switch {
	case spending.IsBudgetWarning(e):
		return singleEvent(structured.BudgetWarning, "a turn has used most of its budget", data)
	case w.GetReason() == spending.ReasonExceeded:
		return singleEvent(structured.BudgetExceeded, "a turn exceeds its budget and continues, because the policy is to warn", data)
	}
	return nil
}

// milliseconds returns a duration in milliseconds, with microseconds as its fraction.
func milliseconds(d *durationpb.Duration) float64 {
	return float64(d.AsDuration().Microseconds()) / 1000
}
