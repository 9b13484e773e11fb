package a2a

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/event"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Item is a task event in the vocabulary of LP-29. One event of the mesh becomes one or more items.
type Item struct {
	// Kind is the kind of the item, such as task-created, task-status or content-delta. docs/a2a.md lists all
	// kinds.
	Kind string `json:"kind"`
	// ContextID is the id of the session.
	ContextID string `json:"contextId"`
	// TaskID is the id of the task.
	TaskID string `json:"taskId"`
	// ParentTaskID is the id of the parent task (omitted if there is none).
	ParentTaskID string `json:"parentTaskId,omitempty"`
	// Path is the agent that caused the event, preceded by its ancestors in a flow and joined by dots (empty
	// outside of steps).
	Path string `json:"path"`
	// Timestamp is the time of the event.
	Timestamp time.Time `json:"timestamp"`
	// Data holds the details of the event.
	Data map[string]any `json:"data,omitempty"`
}

// eventContext holds what translateEvent needs to know about an event beyond the event itself.
type eventContext struct {
	task   string // task of the event's turn; it differs from the turn's trace if the turn continues a task
	parent string // the parent task (empty for none)
	index  int    // index of a text delta in its text, from 0
}

// itemData holds the details of an item, keyed by field name.
type itemData = map[string]any

// translateEvent returns the items for an event of the mesh. An event without a counterpart in LP-29, such as a
// routing decision, becomes a task-status item with the stage of the task.
func translateEvent(e *troupev1.Event, at eventContext) []Item {
	var items []Item
	add := func(kind string, data itemData) {
		items = append(items, Item{
			Kind: kind, ContextID: e.GetSessionId(), TaskID: at.task, ParentTaskID: at.parent,
			Path: agentPath(e), Timestamp: e.GetTime().AsTime(), Data: data,
		})
	}
	working := func(data itemData) {
		data["state"], data["stage"] = "working", lowerEnumName(e.GetStage().String(), "STAGE_")
		add("task-status", data)
	}
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		addTurnStartedItems(p.TurnStarted, at.task != "" && at.task != e.GetTraceId(), add)
	case *troupev1.Event_Plan:
		working(itemData{"workflow": p.Plan.GetWorkflow(), "steps": p.Plan.GetSteps()})
	case *troupev1.Event_RoutingDecision:
		what := "agent"
		if p.RoutingDecision.GetType() == troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION {
			what = "tool"
		}
		working(itemData{what: p.RoutingDecision.GetTarget(), "reason": p.RoutingDecision.GetReason()})
	case *troupev1.Event_StepStarted:
		working(itemData{"agent": e.GetAgent(), "step": e.GetStep(), "attempt": e.GetAttempt()})
	case *troupev1.Event_StepFinished:
		working(itemData{"agent": e.GetAgent(), "step": e.GetStep(), "finished": true})
	case *troupev1.Event_TextDelta:
		add("content-delta", itemData{"index": at.index, "delta": p.TextDelta.GetText()})
	case *troupev1.Event_TextRetracted:
		working(itemData{"step": e.GetStep(), "reset": true})
	case *troupev1.Event_ModelCall:
		add("content-complete", itemData{"finishReason": finishReason(p.ModelCall)})
		add("llm-usage", addUsage(p.ModelCall.GetUsage(), itemData{"model": p.ModelCall.GetModel(), "iteration": p.ModelCall.GetIteration()}))
	case *troupev1.Event_ToolCallStarted:
		c := p.ToolCallStarted
		add("tool-call", itemData{"callId": c.GetCallId(), "tool": c.GetTool(), "arguments": c.GetArguments()})
		add("tool-start", itemData{"callId": c.GetCallId(), "tool": c.GetTool(), "progress": event.ToolRunning.Progress()})
	case *troupev1.Event_ToolProgress:
		addToolProgressItem(p.ToolProgress, add)
	case *troupev1.Event_SubtaskStarted:
		addSubtaskItems(p.SubtaskStarted, add)
	case *troupev1.Event_ToolCallFinished:
		addToolCompleteItems(p.ToolCallFinished, add)
	case *troupev1.Event_ToolCallPending:
		add("tool-input-required", pendingCallData(p.ToolCallPending.GetCall()))
	case *troupev1.Event_AgentMessage:
		addAgentMessageItems(p.AgentMessage, add)
	case *troupev1.Event_ArtifactUpdate:
		u := p.ArtifactUpdate
		add(artifactItemKind(u.GetName()), itemData{
			"name": u.GetName(), "version": u.GetVersion(), "size": u.GetSize(), "append": u.GetAppend(), "complete": u.GetComplete(),
		})
	case *troupev1.Event_Thinking:
		add("thought-stream", itemData{"topic": lowerEnumName(p.Thinking.GetTopic().String(), "TOPIC_"), "text": p.Thinking.GetText()})
	case *troupev1.Event_Custom:
		add("custom", itemData{"name": p.Custom.GetName(), "data": json.RawMessage(cmp.Or(p.Custom.GetData(), "null"))})
	case *troupev1.Event_Warning:
		working(itemData{"warning": p.Warning.GetReason(), "message": p.Warning.GetMessage()})
	case *troupev1.Event_OwnershipViolation:
		v := p.OwnershipViolation
		working(itemData{"violation": v.GetKey(), "owner": v.GetOwner(), "actor": v.GetActor()})
	case *troupev1.Event_Aggregate:
		working(addUsage(p.Aggregate.GetUsage(), itemData{"agents": p.Aggregate.GetAgents()}))
	case *troupev1.Event_TurnResult:
		addTurnResultItems(p.TurnResult, add)
	default:
		working(itemData{}) // an event that only newer versions of the mesh send
	}
	return items
}

// agentPath returns the agent of an event, preceded by its ancestors in a flow.
func agentPath(e *troupev1.Event) string { return cmp.Or(e.GetBranch(), e.GetAgent()) }

func addUsage(u *troupev1.Usage, data itemData) itemData {
	data["inputTokens"], data["outputTokens"], data["cachedTokens"] = u.GetInputTokens(), u.GetOutputTokens(), u.GetCachedTokens()
	data["modelCalls"], data["costMicroUsd"] = u.GetModelCalls(), u.GetCostMicroUsd()
	return data
}

// lowerEnumName returns the name of an enum value in lower case, without its prefix.
func lowerEnumName(value, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value, prefix))
}
