package event_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// toTraceEntry returns the trace entry of a payload without the header fields.
func toTraceEntry(t *testing.T, p event.Payload) map[string]any {
	t.Helper()
	text, err := json.Marshal(event.Event{Invocation: "turn-1", Sequence: 3, Time: noon.In(time.FixedZone("", 3600)), Author: "research", Payload: p})
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(text, &out))
	for key, want := range map[string]string{"id": "turn-1/0/3", "timestamp": "2026-05-01T12:00:00Z", "author": "research"} {
		require.Equal(t, want, out[key])
		delete(out, key)
	}
	return out
}

type jsonObject = map[string]any

// Req: CO-43, CO-44, CO-45
func TestEvent_EncodesAsTraceEntry(t *testing.T) {
	usage := execution.Usage{InputTokens: 100, OutputTokens: 20, ModelCalls: 1, CostMicros: 1_500_000}
	for name, tc := range map[string]struct {
		payload event.Payload
		want    jsonObject
	}{
		"user_input": {event.UserInput{Turn: 2, Prompt: "hi"}, jsonObject{"type": "user_input", "turn": 2.0, "prompt": "hi"}},
		"llm_call": {
			event.ModelCall{Model: "a/b", Iteration: 1, ToolCalls: 2, Usage: usage, Duration: 1500 * time.Millisecond, Finish: event.FinishCalls},
			jsonObject{
				"finish_reason": "tool_calls",
				"type":          "llm_call", "model": "a/b", "iteration": 1.0, "tool_calls_count": 2.0, "duration_ms": 1500.0,
				"usage": jsonObject{"input_tokens": 100.0, "output_tokens": 20.0, "cost": 1.5},
			},
		},
		"llm_call at no known cost": {
			event.ModelCall{Model: "a/b", Iteration: 1},
			jsonObject{
				"type": "llm_call", "model": "a/b", "iteration": 1.0, "tool_calls_count": 0.0, "duration_ms": 0.0,
				"usage": jsonObject{"input_tokens": 0.0, "output_tokens": 0.0},
			},
		},
		"tool_progress": {
			event.ToolProgress{CallID: "1", Tool: "echo", Message: "half", Fraction: new(0.5)},
			jsonObject{"type": "tool_progress", "tool_name": "echo", "call_id": "1", "message": "half", "fraction": 0.5},
		},
		"subtask": {
			event.SubtaskStarted{Target: "aide", Session: "s", Request: "r", Trace: "t", Turn: "u", CallID: "1"},
			jsonObject{"type": "subtask", "target": "aide", "session_id": "s", "request_id": "r", "trace_id": "t", "turn_id": "u", "call_id": "1"},
		},
		"tool_call": {
			event.ToolStarted{CallID: "1", Tool: "echo", Arguments: `{"word": "a"}`},
			jsonObject{"type": "tool_call", "tool_name": "echo", "call_id": "1", "arguments": jsonObject{"word": "a"}, "status": "running"},
		},
		"tool_execution": {
			event.ToolFinished{
				CallID: "1", Tool: "echo", Arguments: `{"word": "a"}`, Iteration: 1, Status: event.ToolSuccess, Result: "a", Summary: "a",
				Duration: time.Second,
			},
			jsonObject{
				"type": "tool_execution", "tool_name": "echo", "call_id": "1", "arguments": jsonObject{"word": "a"},
				"iteration": 1.0, "status": "success", "result": "a", "timing": 1000.0,
			},
		},
		"tool_execution with nothing to tell": {
			event.ToolFinished{CallID: "1", Tool: "echo", Arguments: `{}`, Iteration: 1, Status: event.ToolSuccess},
			jsonObject{
				"type": "tool_execution", "tool_name": "echo", "call_id": "1", "arguments": jsonObject{}, "iteration": 1.0, "status": "success",
				"result": "", "timing": 0.0,
			},
		},
		"tool_execution that failed": {
			event.ToolFinished{
				CallID: "1", Tool: "echo", Arguments: `{broken`, Iteration: 1, Status: event.ToolError, Result: "Error: oh",
				ErrorType: "agent_validation",
			},
			jsonObject{
				"type": "tool_execution", "tool_name": "echo", "call_id": "1", "arguments": "{broken", "iteration": 1.0,
				"status": "error", "result": "Error: oh", "error": "Error: oh", "error_type": "agent_validation", "timing": 0.0,
			},
		},
		"tool_pending": {
			event.ToolPending{Pending: execution.Pending{
				ID: "1-1-2", CallID: "1", Tool: "send", Arguments: `{"to": "all"}`, Needs: execution.NeedApproval, Risk: execution.AtMostOnce, Reason: "It sends.", Until: noon,
			}},
			jsonObject{
				"type": "tool_pending", "tool_name": "send", "call_id": "1", "arguments": jsonObject{"to": "all"}, "status": "waiting",
				"pending_id": "1-1-2", "needs": "approval", "risk": "at_most_once", "message": "It sends.", "until": "2026-05-01T12:00:00Z",
			},
		},
		"tool_pending without a limit": {
			event.ToolPending{Pending: execution.Pending{ID: "1-1-2", Tool: "look", Arguments: `{}`, Needs: execution.NeedResult}},
			jsonObject{"type": "tool_pending", "tool_name": "look", "arguments": jsonObject{}, "status": "waiting", "pending_id": "1-1-2", "needs": "result"},
		},
		"thinking": {event.Thinking{Topic: event.Plan, Text: "first"}, jsonObject{"type": "thinking", "kind": "plan", "content": "first"}},
		"files_received": {
			event.FilesReceived{Files: []conversation.Attachment{{Name: "map.pdf", MediaType: "application/pdf", Size: 9, Version: 2, Data: []byte("secret")}}},
			jsonObject{"type": "files_received", "files": []any{jsonObject{"name": "map.pdf", "media_type": "application/pdf", "size": 9.0, "version": 2.0}}},
		},
		"plan": {
			event.PlanMade{Tasks: []execution.PlannedTask{{Agent: "finder", Text: "Find it."}}},
			jsonObject{"type": "plan", "tasks": []any{jsonObject{"agent": "finder", "text": "Find it."}}},
		},
		"assistant": {
			event.Answer{Text: "Yes.", Reason: event.Natural, Iterations: 2},
			jsonObject{"type": "assistant", "content": "Yes.", "reason": "natural", "iteration": 2.0},
		},
		"error": {event.Error{Type: "resource_api", Message: "down"}, jsonObject{"type": "error", "error": "down", "error_type": "resource_api"}},
		"custom": {event.Custom{Name: "order.placed", Data: json.RawMessage(`{"id":7}`)}, jsonObject{
			"type": "custom", "name": "order.placed", "data": jsonObject{"id": 7.0},
		}},
		"custom without data": {event.Custom{Name: "idle"}, jsonObject{"type": "custom", "name": "idle"}},
		"warning":             {event.Warning{Reason: "W", Message: "mind"}, jsonObject{"type": "warning", "reason": "W", "message": "mind"}},
		"ownership_violation": {
			event.OwnershipViolation{Key: "history", Owner: ownership.Memory, Actor: "a", Operation: "ownership.set"},
			jsonObject{"type": "ownership_violation", "key": "history", "owner": "memory", "actor": "a", "operation": "ownership.set"},
		},
		"message": {
			event.Message{
				Text: "a", State: map[string]json.RawMessage{"set": json.RawMessage(`1`), "gone": nil, "away": {}},
				Artifacts: map[string]int{"r": 2},
			},
			jsonObject{"type": "message", "text": "a", "state_delta": jsonObject{"set": 1.0, "gone": nil, "away": nil}, "artifact_delta": jsonObject{"r": 2.0}},
		},
		"turn_result": {
			event.TurnResult{Turn: 2, Reason: event.Natural, Usage: &usage, Duration: time.Second, Messages: []conversation.Message{conversation.User("x")}},
			jsonObject{"type": "turn_result", "turn": 2.0, "reason": "natural", "duration_ms": 1000.0, "usage": jsonObject{
				"input_tokens":  100.0,
				"output_tokens": 20.0, "cost": 1.5,
			}},
		},
		"turn_result of a failure": {
			event.TurnResult{Turn: 2, Reason: event.Failed, ErrorType: "resource_api"},
			jsonObject{"type": "turn_result", "turn": 2.0, "reason": "error", "error_type": "resource_api", "duration_ms": 0.0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, cmp.Diff(tc.want, toTraceEntry(t, tc.payload)))
		})
	}
}

func TestEvent_KindsAreUnique(t *testing.T) {
	seen := map[string]event.Payload{}
	for _, p := range []event.Payload{
		event.UserInput{},
		event.FilesReceived{},
		event.PlanMade{},
		event.Error{},
		event.TextDelta{},
		event.ModelCall{},
		event.ToolStarted{},
		event.ToolFinished{},
		event.ToolPending{},
		event.ToolProgress{},
		event.SubtaskStarted{},
		event.MessageAppended{},
		event.Message{},
		event.Thinking{},
		event.Custom{},
		event.Warning{},
		event.OwnershipViolation{},
		event.Answer{},
		event.TurnResult{},
	} {
		require.NotContains(t, seen, p.Kind(), "%v", reflect.TypeOf(p))
		seen[p.Kind()] = p
	}
	require.Equal(t, event.InternalPrefix+"appended", event.MessageAppended{}.Kind())
}

// Req: AD-14
func TestEvent_OnlyTextIsFinal(t *testing.T) {
	require.True(t, event.Event{Payload: event.Answer{Text: "a"}}.Final())
	for _, p := range []event.Payload{event.TextDelta{Text: "a"}, event.ToolPending{}, event.Warning{}} {
		require.False(t, event.Event{Payload: p}.Final(), p.Kind())
	}
	require.True(t, event.Event{Payload: event.Message{Text: "a"}}.Final())
	require.False(t, event.Event{Payload: event.Message{State: map[string]json.RawMessage{"a": nil}}}.Final())
}

// Durations are milliseconds with a fraction, so a fast tool does not take 0.
//
// Req: CO-70
func TestEvent_DurationsHaveAFraction(t *testing.T) {
	for want, p := range map[string]event.Payload{
		`"timing":0.1`:          event.ToolFinished{Duration: 100 * time.Microsecond},
		`"duration_ms":1500.25`: event.ModelCall{Duration: 1500*time.Millisecond + 250*time.Microsecond},
		`"duration_ms":0.001`:   event.TurnResult{Duration: time.Microsecond},
	} {
		text, err := json.Marshal(event.Event{Payload: p})
		require.NoError(t, err)
		require.Contains(t, string(text), want)
	}
}

// Req: CO-71
func TestTurnResult_SetErrorNamesEveryError(t *testing.T) {
	for want, err := range map[string]error{
		"resource_api":        failure.New(failure.ResourceAPI, "test", "down"),
		"*errors.errorString": errors.New("down"),
	} {
		var r event.TurnResult
		r.SetError(err)
		require.Equal(t, event.TurnResult{Reason: event.Failed, ErrorType: want}, r)
	}
	var r event.TurnResult
	r.SetError(context.Canceled)
	require.Equal(t, "user_cancelled", r.ErrorType)
}

// Clients that need no more than three statuses get in_progress, completed or failed.
//
// Req: CO-50
func TestToolStatus_Progress(t *testing.T) {
	for status, want := range map[event.ToolStatus]string{
		event.ToolRunning: "in_progress", event.ToolWaiting: "in_progress",
		event.ToolSuccess: "completed", event.ToolAsked: "completed",
		event.ToolError: "failed", event.ToolNotFound: "failed", event.ToolInterrupted: "failed", event.ToolUnknownOutcome: "failed",
	} {
		require.Equal(t, want, status.Progress(), status)
	}
}
