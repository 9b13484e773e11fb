package a2a

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const taskID = "0af7651916cd43dd8448eb211c80319c"

// newEvent returns an event of step 1 in the trace of the tested task.
func newEvent(stage troupev1.Stage) *troupev1.Event {
	return &troupev1.Event{TraceId: taskID, SessionId: "s1", Step: 1, Attempt: 1, Agent: "research", Time: timestamppb.New(noon), Stage: stage}
}

// Req: LP-29
func TestTranslate_ReturnsTheItemsOfEachEvent(t *testing.T) {
	used := &troupev1.Usage{InputTokens: 10, OutputTokens: 2, ModelCalls: 1, CostMicroUsd: 7}
	usedData := func(more itemData) itemData {
		data := itemData{"inputTokens": int64(10), "outputTokens": int64(2), "cachedTokens": int64(0), "modelCalls": int32(1), "costMicroUsd": int64(7)}
		maps.Copy(data, more)
		return data
	}
	call := &troupev1.PendingCall{
		Id: "1-1", CallId: "c1", Tool: "send", Arguments: `{"to":"bob"}`, Agent: "clerk", Risk: "at_most_once", Reason: "Mails leave the house.",
		Needs: troupev1.CallNeed_CALL_NEED_APPROVAL, Until: timestamppb.New(noon),
	}
	waits := itemData{
		"id": "1-1", "callId": "c1", "tool": "send", "arguments": `{"to":"bob"}`, "agent": "clerk",
		"needs": "approval", "risk": "at_most_once", "reason": "Mails leave the house.", "until": noon,
	}
	lacks := &troupev1.PendingCall{Id: "1-2", CallId: "c2", Tool: "fetch", Agent: "clerk", Needs: troupev1.CallNeed_CALL_NEED_AUTH, Auth: &troupev1.PendingAuth{
		AuthId: "k@clerk-1", Name: "mailbox", Prompt: "Log in.", Url: "https://x", PublicKey: []byte{1, 2, 3}, Expires: timestamppb.New(noon),
	}}
	lacksData := itemData{
		"id": "1-2", "callId": "c2", "tool": "fetch", "arguments": "", "agent": "clerk", "needs": "auth", "risk": "", "reason": "",
		"auth": itemData{"authId": "k@clerk-1", "name": "mailbox", "prompt": "Log in.", "url": "https://x", "publicKey": "AQID", "expires": noon},
	}
	model := func(finish troupev1.FinishReason) *troupev1.Event {
		return &troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{
			Model: "m", Iteration: 1, ToolCalls: 1,
			Finish: finish, Usage: used,
		}}}
	}
	subtasked := func(call string) *troupev1.Event {
		return &troupev1.Event{Payload: &troupev1.Event_SubtaskStarted{SubtaskStarted: &troupev1.SubtaskStarted{
			Target: "finder", SessionId: "theirs", RequestId: "sub-1", TraceId: "child", TurnId: "t2", CallId: call,
		}}}
	}
	type items []struct {
		kind string
		data itemData
	}
	result := func(r *troupev1.TurnResult) *troupev1.Event {
		return &troupev1.Event{Stage: troupev1.Stage_STAGE_COMPLETE, Payload: &troupev1.Event_TurnResult{TurnResult: r}}
	}
	for name, tc := range map[string]struct {
		event *troupev1.Event
		want  items
	}{
		"a task begins": {
			&troupev1.Event{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{RequestId: "r1", TurnId: "t1", Target: "flow"}}},
			items{{"task-created", itemData{"requestId": "r1", "turnId": "t1", "target": "flow"}}},
		},
		"a task goes on": {
			&troupev1.Event{TraceId: "another", Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{
				RequestId: "r2", TurnId: "t2", Target: "flow", Answers: []*troupev1.CallAnswer{{
					Id:      "1-1",
					Verdict: troupev1.CallVerdict_CALL_VERDICT_SUCCEED, Text: "private",
				}},
			}}},
			items{
				{"input-received", itemData{"requestId": "r2", "turnId": "t2", "target": "flow", "answers": []itemData{{"id": "1-1", "verdict": "succeed"}}}},
				{"task-status", itemData{"state": "working", "stage": "initialize"}},
			},
		},
		"a task continues with a credential, and one came too late": {
			&troupev1.Event{TraceId: "another", Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{Answers: []*troupev1.CallAnswer{
				{Id: "1-1", AuthId: "k@clerk-1", Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE},
				{Id: "1-2", AuthId: "l@clerk-1", Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE, Late: true},
				{Id: "1-3", Verdict: troupev1.CallVerdict_CALL_VERDICT_STOP},
			}}}},
			items{
				{"input-received", itemData{"requestId": "", "turnId": "", "target": "", "answers": []itemData{
					{"id": "1-1", "verdict": "approve"}, {"id": "1-2", "verdict": "deny"}, {"id": "1-3", "verdict": "stop"},
				}}},
				{"auth-completed", itemData{"id": "1-1", "authId": "k@clerk-1", "verdict": "approve"}},
				{"auth-completed", itemData{"id": "1-2", "authId": "l@clerk-1", "verdict": "deny"}},
				{"task-status", itemData{"state": "working", "stage": "initialize"}},
			},
		},
		"a task begins with files": {
			&troupev1.Event{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{Attachments: []*troupev1.Blob{
				{Name: "map.png", Artifact: &troupev1.ArtifactRef{Name: "map.png", Version: 1}}, {
					Name:     "rows.csv",
					Artifact: &troupev1.ArtifactRef{Name: "rows.csv", Version: 2},
				},
			}}}},
			items{
				{"task-created", itemData{"requestId": "", "turnId": "", "target": ""}},
				{"file-write", itemData{"name": "map.png", "version": int32(1)}},
				{"dataset-write", itemData{"name": "rows.csv", "version": int32(2)}},
			},
		},
		"a plan": {
			&troupev1.Event{Stage: troupev1.Stage_STAGE_PLAN, Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Workflow: "flow", Steps: []string{"a", "b"}}}},
			items{{"task-status", itemData{"state": "working", "stage": "plan", "workflow": "flow", "steps": []string{"a", "b"}}}},
		},
		"a routing decision": {
			&troupev1.Event{
				Stage:   troupev1.Stage_STAGE_ROUTE,
				Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{Target: "a", Reason: "because"}},
			},
			items{{"task-status", itemData{"state": "working", "stage": "route", "agent": "a", "reason": "because"}}},
		},
		"a step begins": {
			&troupev1.Event{Payload: &troupev1.Event_StepStarted{}},
			items{{"task-status", itemData{"state": "working", "stage": "execute", "agent": "research", "step": int32(1), "attempt": int32(1)}}},
		},
		"a step ends": {
			&troupev1.Event{Payload: &troupev1.Event_StepFinished{}},
			items{{"task-status", itemData{"state": "working", "stage": "execute", "agent": "research", "step": int32(1), "finished": true}}},
		},
		"text": {
			&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "An "}}},
			items{{"content-delta", itemData{"index": 3, "delta": "An "}}},
		},
		"text that is void": {
			&troupev1.Event{Payload: &troupev1.Event_TextRetracted{}},
			items{{"task-status", itemData{"state": "working", "stage": "execute", "step": int32(1), "reset": true}}},
		},
		"a model that answers": {
			&troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{Model: "m", Iteration: 2, Usage: used}}},
			items{{"content-complete", itemData{"finishReason": "stop"}}, {"llm-usage", usedData(itemData{"model": "m", "iteration": int32(2)})}},
		},
		"a model that calls tools": {
			&troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{Model: "m", Iteration: 1, ToolCalls: 2, Usage: used}}},
			items{{"content-complete", itemData{"finishReason": "tool_calls"}}, {"llm-usage", usedData(itemData{"model": "m", "iteration": int32(1)})}},
		},
		"a model that is cut off": {
			model(troupev1.FinishReason_FINISH_REASON_LENGTH),
			items{{"content-complete", itemData{"finishReason": "length"}}, {"llm-usage", usedData(itemData{"model": "m", "iteration": int32(1)})}},
		},
		"a model that declines": {
			model(troupev1.FinishReason_FINISH_REASON_CONTENT_FILTER),
			items{{"content-complete", itemData{"finishReason": "content_filter"}}, {"llm-usage", usedData(itemData{"model": "m", "iteration": int32(1)})}},
		},
		"a model that says all, and calls tools": {
			model(troupev1.FinishReason_FINISH_REASON_STOP),
			items{{"content-complete", itemData{"finishReason": "stop"}}, {"llm-usage", usedData(itemData{"model": "m", "iteration": int32(1)})}},
		},
		"a model that waits for its tools": {
			model(troupev1.FinishReason_FINISH_REASON_TOOL_CALLS),
			items{{"content-complete", itemData{"finishReason": "tool_calls"}}, {"llm-usage", usedData(itemData{"model": "m", "iteration": int32(1)})}},
		},
		"a tool is half done": {
			&troupev1.Event{Payload: &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{
				CallId: "c1", Tool: "look",
				Message: "half", Fraction: new(0.5),
			}}},
			items{{"tool-progress", itemData{"callId": "c1", "tool": "look", "message": "half", "fraction": 0.5}}},
		},
		"a tool does not know how far it is": {
			&troupev1.Event{Payload: &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{CallId: "c1", Tool: "look", Message: "still"}}},
			items{{"tool-progress", itemData{"callId": "c1", "tool": "look", "message": "still"}}},
		},
		"another agent works for this one": {
			subtasked(""),
			items{
				{"subtask-created", itemData{"taskId": "child", "contextId": "theirs", "turnId": "t2", "requestId": "sub-1", "target": "finder"}},
				{"task-status", itemData{"state": "waiting-subtask", "stage": "execute", "taskId": "child"}},
			},
		},
		"another agent works for this one, as a tool": {
			subtasked("c1"),
			items{
				{"subtask-created", itemData{
					"taskId": "child", "contextId": "theirs", "turnId": "t2", "requestId": "sub-1", "target": "finder",
					"callId": "c1",
				}},
				{"task-status", itemData{"state": "waiting-subtask", "stage": "execute", "taskId": "child", "callId": "c1"}},
			},
		},
		"a tool begins": {
			&troupev1.Event{Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{CallId: "c1", Tool: "look", Arguments: "{}"}}},
			items{{"tool-call", itemData{"callId": "c1", "tool": "look", "arguments": "{}"}}, {"tool-start", itemData{"callId": "c1", "tool": "look", "progress": "in_progress"}}},
		},
		"a tool ends": {
			&troupev1.Event{Payload: &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
				CallId: "c1", Tool: "look", Status: troupev1.ToolStatus_TOOL_STATUS_SUCCESS, Summary: "red", Duration: durationpb.New(time.Second),
			}}},
			items{{"tool-complete", itemData{"callId": "c1", "tool": "look", "status": "success", "progress": "completed", "summary": "red", "milliseconds": int64(1000)}}},
		},
		"a tool asks": {
			&troupev1.Event{Payload: &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
				CallId: "c1", Tool: "ask", Status: troupev1.ToolStatus_TOOL_STATUS_INPUT_REQUIRED,
			}}},
			items{
				{"tool-complete", itemData{"callId": "c1", "tool": "ask", "status": "input_required", "progress": "completed", "summary": "", "milliseconds": int64(0)}},
				{"tool-input-required", itemData{"callId": "c1", "tool": "ask"}},
			},
		},
		"a call waits": {
			&troupev1.Event{Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: call}}},
			items{{"tool-input-required", waits}},
		},
		"a handler speaks and writes": {
			&troupev1.Event{Payload: &troupev1.Event_AgentMessage{AgentMessage: &troupev1.AgentMessage{
				Text: "Done.", StateKeys: []string{"user:name"}, Artifacts: map[string]int32{"rows.CSV": 2, "plan.md": 1},
			}}},
			items{
				{"message", itemData{"text": "Done."}},
				{"file-write", itemData{"name": "plan.md", "version": int32(1)}},
				{"dataset-write", itemData{"name": "rows.CSV", "version": int32(2)}},
				{"data-write", itemData{"keys": []string{"user:name"}}},
			},
		},
		"an event of the agent's own": {
			&troupev1.Event{Payload: &troupev1.Event_Custom{Custom: &troupev1.CustomEvent{Name: "order.placed", Data: `{"id":7}`}}},
			items{{"custom", itemData{"name": "order.placed", "data": json.RawMessage(`{"id":7}`)}}},
		},
		"an event of the agent's own without data": {
			&troupev1.Event{Payload: &troupev1.Event_Custom{Custom: &troupev1.CustomEvent{Name: "idle"}}},
			items{{"custom", itemData{"name": "idle", "data": json.RawMessage("null")}}},
		},
		"a thought": {
			&troupev1.Event{Payload: &troupev1.Event_Thinking{Thinking: &troupev1.Thinking{Topic: troupev1.Topic_TOPIC_PLAN, Text: "First this."}}},
			items{{"thought-stream", itemData{"topic": "plan", "text": "First this."}}},
		},
		"a warning": {
			&troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: "MAX_ITERATIONS", Message: "It was the last."}}},
			items{{"task-status", itemData{"state": "working", "stage": "execute", "warning": "MAX_ITERATIONS", "message": "It was the last."}}},
		},
		"a sum": {
			&troupev1.Event{
				Stage:   troupev1.Stage_STAGE_AGGREGATE,
				Payload: &troupev1.Event_Aggregate{Aggregate: &troupev1.Aggregate{Agents: []string{"a"}, Usage: used}},
			},
			items{{"task-status", usedData(itemData{"state": "working", "stage": "aggregate", "agents": []string{"a"}})}},
		},
		"an answer": {
			result(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Agent: "research", Text: "Red.", Usage: used}),
			items{{"task-status", itemData{"state": "completed"}}, {"task-complete", usedData(itemData{"state": "completed", "agent": "research"})}},
		},
		"a failure": {
			result(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Usage: used, Failure: &troupev1.Failure{
				Mode: troupev1.FailureMode_FAILURE_MODE_RESOURCE_API, Message: "The service is down.",
			}}),
			items{
				{"task-status", itemData{"state": "failed", "reason": "resource_api", "message": "The service is down."}},
				{"task-complete", usedData(itemData{"state": "failed", "agent": ""})},
			},
		},
		"a question": {
			result(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "Which?"}),
			items{{"input-required", itemData{"text": "Which?", "pending": []itemData{}}}, {"task-status", itemData{"state": "waiting-input"}}},
		},
		"a call that the turn ends with": {
			result(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "May I?", Pending: []*troupev1.PendingCall{call}}),
			items{{"input-required", itemData{"text": "May I?", "pending": []itemData{waits}}}, {"task-status", itemData{"state": "waiting-input"}}},
		},
		"a cancellation": {
			result(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, Usage: used}),
			items{{"task-status", itemData{"state": "canceled"}}, {"task-complete", usedData(itemData{"state": "canceled", "agent": ""})}},
		},
		"a call lacks a credential": {
			&troupev1.Event{Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: lacks}}},
			items{{"tool-input-required", lacksData}},
		},
		"an authorization that is needed": {
			result(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED, Text: "Log in.", Pending: []*troupev1.PendingCall{lacks}}),
			items{{"auth-required", itemData{"text": "Log in.", "pending": []itemData{lacksData}}}, {"task-status", itemData{"state": "waiting-auth"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvent(troupev1.Stage_STAGE_EXECUTE)
			e.Payload = tc.event.GetPayload()
			if tc.event.GetStage() != 0 {
				e.Stage = tc.event.GetStage()
			}
			if tc.event.GetTraceId() != "" {
				e.TraceId = tc.event.GetTraceId()
			}
			got := translateEvent(e, eventContext{task: taskID, parent: "above", index: 3})
			want := []Item{}
			for _, w := range tc.want {
				want = append(want, Item{Kind: w.kind, ContextID: "s1", TaskID: taskID, ParentTaskID: "above", Path: "research", Timestamp: noon, Data: w.data})
			}
			require.Empty(t, cmp.Diff(want, got))
		})
	}
}

// Every kind of event is converted to at least one item, including kinds that the bridge does not know.
func TestTranslate_ConvertsEveryEvent(t *testing.T) {
	kinds := (&troupev1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("payload").Fields()
	require.NotZero(t, kinds.Len())
	for i := range kinds.Len() {
		e := newEvent(troupev1.Stage_STAGE_EXECUTE)
		e.Branch = "flow.research"
		m := e.ProtoReflect()
		field := kinds.Get(i)
		m.Set(field, m.NewField(field))
		if agent := e.GetAgentMessage(); agent != nil {
			agent.Text = "Done."
		}
		items := translateEvent(e, eventContext{task: taskID})
		require.NotEmpty(t, items, field.Name())
		for _, item := range items {
			require.Equal(t, "flow.research", item.Path)
			require.NotEmpty(t, item.Kind)
			require.Empty(t, item.ParentTaskID)
		}
	}
}
