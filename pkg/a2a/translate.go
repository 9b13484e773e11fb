package a2a

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Item is one event of a task in the words of LP-29. One event of the mesh is one item or more.
type Item struct {
	// Kind is what happened: task-created, task-status, content-delta, and so on; docs/a2a.md has all.
	Kind string `json:"kind"`
	// ContextID is the session.
	ContextID string `json:"contextId"`
	// TaskID is the task.
	TaskID string `json:"taskId"`
	// ParentTaskID is the task below which this one runs; absent when it is nobody's child.
	ParentTaskID string `json:"parentTaskId,omitempty"`
	// Path is the agent, with those above it in a flow and dots between them; empty outside of steps.
	Path string `json:"path"`
	// Timestamp is when it happened.
	Timestamp time.Time `json:"timestamp"`
	// Data is what there is to say of it.
	Data map[string]any `json:"data,omitempty"`
}

// place is where in its stream an event stands, as far as it does not say so itself.
type place struct {
	task   string // the task of its turn; it goes on with one if that is not the turn's own trace
	parent string // the task above; empty: none
	index  int    // of a text delta in what is being said, from 0
}

// facts are the data of an item.
type facts = map[string]any

// translate says an event of the mesh in the words of LP-29. What has no word there, such as
// a routing decision, is a task-status that says at which stage the task works.
func translate(e *troupev1.Event, at place) []Item {
	var items []Item
	add := func(kind string, data facts) {
		items = append(items, Item{
			Kind: kind, ContextID: e.GetSessionId(), TaskID: at.task, ParentTaskID: at.parent,
			Path: pathOf(e), Timestamp: e.GetTime().AsTime(), Data: data,
		})
	}
	working := func(data facts) {
		data["state"], data["stage"] = "working", lower(e.GetStage().String(), "STAGE_")
		add("task-status", data)
	}
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		started(p.TurnStarted, at.task != "" && at.task != e.GetTraceId(), add)
	case *troupev1.Event_Plan:
		working(facts{"workflow": p.Plan.GetWorkflow(), "steps": p.Plan.GetSteps()})
	case *troupev1.Event_RoutingDecision:
		working(facts{"agent": p.RoutingDecision.GetTarget(), "reason": p.RoutingDecision.GetReason()})
	case *troupev1.Event_StepStarted:
		working(facts{"agent": e.GetAgent(), "step": e.GetStep(), "attempt": e.GetAttempt()})
	case *troupev1.Event_StepFinished:
		working(facts{"agent": e.GetAgent(), "step": e.GetStep(), "finished": true})
	case *troupev1.Event_TextDelta:
		add("content-delta", facts{"index": at.index, "delta": p.TextDelta.GetText()})
	case *troupev1.Event_PartReset:
		working(facts{"step": e.GetStep(), "reset": true})
	case *troupev1.Event_ModelCall:
		add("content-complete", facts{"finishReason": finish(p.ModelCall)})
		add("llm-usage", usage(p.ModelCall.GetUsage(), facts{"model": p.ModelCall.GetModel(), "iteration": p.ModelCall.GetIteration()}))
	case *troupev1.Event_ToolCallStarted:
		c := p.ToolCallStarted
		add("tool-call", facts{"callId": c.GetCallId(), "tool": c.GetTool(), "arguments": c.GetArguments()})
		add("tool-start", facts{"callId": c.GetCallId(), "tool": c.GetTool()})
		subtask(c, add)
	case *troupev1.Event_ToolCallFinished:
		c := p.ToolCallFinished
		status := lower(c.GetStatus().String(), "TOOL_STATUS_")
		add("tool-complete", facts{
			"callId": c.GetCallId(), "tool": c.GetTool(), "status": status, "summary": c.GetSummary(), "milliseconds": c.GetDuration().AsDuration().Milliseconds(),
		})
		if c.GetStatus() == troupev1.ToolStatus_TOOL_STATUS_INPUT_REQUIRED {
			add("tool-input-required", facts{"callId": c.GetCallId(), "tool": c.GetTool()})
		}
	case *troupev1.Event_ToolCallPending:
		add("tool-input-required", pending(p.ToolCallPending.GetCall()))
	case *troupev1.Event_AgentMessage:
		message(p.AgentMessage, add)
	case *troupev1.Event_Thinking:
		add("thought-stream", facts{"topic": lower(p.Thinking.GetTopic().String(), "TOPIC_"), "text": p.Thinking.GetText()})
	case *troupev1.Event_Warning:
		working(facts{"warning": p.Warning.GetReason(), "message": p.Warning.GetMessage()})
	case *troupev1.Event_Aggregate:
		working(usage(p.Aggregate.GetUsage(), facts{"agents": p.Aggregate.GetAgents()}))
	case *troupev1.Event_TurnResult:
		ended(p.TurnResult, add)
	default:
		working(more(e, add))
	}
	return items
}

// pathOf is the agent of an event with those above it in a flow.
func pathOf(e *troupev1.Event) string { return cmp.Or(e.GetBranch(), e.GetAgent()) }

// started is the first event of a turn: that of a task, or the input with which one goes on.
func started(p *troupev1.TurnStarted, goesOn bool, add func(string, facts)) {
	about := facts{"requestId": p.GetRequestId(), "turnId": p.GetTurnId(), "target": p.GetTarget()}
	if !goesOn {
		add("task-created", about)
		return
	}
	answers := []facts{}
	for _, a := range p.GetAnswers() {
		answers = append(answers, facts{"id": a.GetId(), "verdict": lower(a.GetVerdict().String(), "CALL_VERDICT_")})
	}
	about["answers"] = answers
	add("input-received", about)
	authReceived(p, add)
	add("task-status", facts{"state": "working", "stage": "initialize"})
}

// message is what an agent says or changes beside the words of its model. The values and the
// bytes are with the session.
func message(m *troupev1.AgentMessage, add func(string, facts)) {
	if m.GetText() != "" {
		add("message", facts{"text": m.GetText()})
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetArtifacts())) {
		kind := "file-write"
		if slices.Contains(datasets, strings.ToLower(path.Ext(name))) {
			kind = "dataset-write"
		}
		add(kind, facts{"name": name, "version": m.GetArtifacts()[name]})
	}
	if len(m.GetStateKeys()) > 0 {
		add("data-write", facts{"keys": m.GetStateKeys()})
	}
}

// datasets are the ends of names of artifacts that are rows, one like the other.
var datasets = []string{".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"}

// ended is the last event of a turn.
func ended(r *troupev1.TurnResult, add func(string, facts)) {
	state := stateOf(r)
	status := facts{"state": words[state]}
	if f := r.GetFailure(); f != nil {
		status["reason"], status["message"] = lower(f.GetMode().String(), "FAILURE_MODE_"), f.GetMessage()
	}
	if waits := asks[state]; waits != "" {
		add(waits, facts{"text": r.GetText(), "pending": all(r.GetPending())})
		add("task-status", status)
		return
	}
	add("task-status", status)
	add("task-complete", usage(r.GetUsage(), facts{"state": words[state], "agent": r.GetAgent()}))
}

func all(calls []*troupev1.PendingCall) []facts {
	waits := []facts{}
	for _, c := range calls {
		waits = append(waits, pending(c))
	}
	return waits
}

// pending is a call that waits, as clients of A2A are told of it.
func pending(c *troupev1.PendingCall) facts {
	told := facts{
		"id": c.GetId(), "callId": c.GetCallId(), "tool": c.GetTool(), "arguments": c.GetArguments(), "agent": c.GetAgent(),
		"needs": lower(c.GetNeeds().String(), "CALL_NEED_"), "risk": c.GetRisk(), "reason": c.GetReason(),
	}
	if c.GetUntil() != nil {
		told["until"] = c.GetUntil().AsTime()
	}
	return told
}

func usage(u *troupev1.Usage, data facts) facts {
	data["inputTokens"], data["outputTokens"], data["cachedTokens"] = u.GetInputTokens(), u.GetOutputTokens(), u.GetCachedTokens()
	data["modelCalls"], data["costMicroUsd"] = u.GetModelCalls(), u.GetCostMicroUsd()
	return data
}

// lower is the word of an enum's value.
func lower(value, prefix string) string { return strings.ToLower(strings.TrimPrefix(value, prefix)) }
