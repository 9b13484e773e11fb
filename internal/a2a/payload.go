package a2a

import (
	"encoding/base64"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/event"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// addTurnStartedItems adds the items for the first event of a turn. The turn either creates a task or brings input
// for an existing one.
func addTurnStartedItems(p *troupev1.TurnStarted, continuesTask bool, add func(string, itemData)) {
	about := itemData{"requestId": p.GetRequestId(), "turnId": p.GetTurnId(), "target": p.GetTarget()}
	if !continuesTask {
		add("task-created", about)
		addAttachmentItems(p, add)
		return
	}
	answers := []itemData{}
	for _, a := range p.GetAnswers() {
		answers = append(answers, itemData{"id": a.GetId(), "verdict": verdictName(a)})
	}
	about["answers"] = answers
	add("input-received", about)
	for _, a := range p.GetAnswers() {
		if a.GetAuthId() != "" {
			add("auth-completed", itemData{"id": a.GetId(), "authId": a.GetAuthId(), "verdict": verdictName(a)})
		}
	}
	addAttachmentItems(p, add)
	add("task-status", itemData{"state": "working", "stage": "initialize"})
}

// addAttachmentItems adds items for the files of the user, which become artifacts of the task.
func addAttachmentItems(p *troupev1.TurnStarted, add func(string, itemData)) {
	for _, f := range p.GetAttachments() {
		add(artifactItemKind(f.GetName()), itemData{"name": f.GetName(), "version": f.GetArtifact().GetVersion()})
	}
}

// verdictName returns the verdict on a call in lower case. A late answer counts as deny.
func verdictName(a *troupev1.CallAnswer) string {
	if a.GetLate() {
		return "deny"
	}
	return lowerEnumName(a.GetVerdict().String(), "CALL_VERDICT_")
}

// finishReason returns why the model stopped: stop, length, tool_calls, content_filter or other. If the model gave no
// reason, the reason is derived from its tool calls.
func finishReason(m *troupev1.ModelCall) string {
	if said := m.GetFinish(); said != troupev1.FinishReason_FINISH_REASON_UNSPECIFIED {
		return lowerEnumName(said.String(), "FINISH_REASON_")
	}
	if m.GetToolCalls() > 0 {
		return "tool_calls"
	}
	return "stop"
}

// addToolCompleteItems adds the items for the end of a tool call.
func addToolCompleteItems(c *troupev1.ToolCallFinished, add func(string, itemData)) {
	status := lowerEnumName(c.GetStatus().String(), "TOOL_STATUS_")
	add("tool-complete", itemData{
		"callId": c.GetCallId(), "tool": c.GetTool(), "status": status, "progress": event.ToolStatus(status).Progress(),
		"summary": c.GetSummary(), "milliseconds": c.GetDuration().AsDuration().Milliseconds(),
	})
	if c.GetStatus() == troupev1.ToolStatus_TOOL_STATUS_INPUT_REQUIRED {
		add("tool-input-required", itemData{"callId": c.GetCallId(), "tool": c.GetTool()})
	}
}

// addToolProgressItem adds the item for the progress of a tool.
func addToolProgressItem(p *troupev1.ToolProgress, add func(string, itemData)) {
	data := itemData{"callId": p.GetCallId(), "tool": p.GetTool(), "message": p.GetMessage()}
	if p.Fraction != nil {
		data["fraction"] = p.GetFraction()
	}
	add("tool-progress", data)
}

// addSubtaskItems adds the items for a child turn, which is a separate task whose parent is this task. The A2A
// state stays working although one agent waits for the child, because parallel agents may still run.
func addSubtaskItems(s *troupev1.SubtaskStarted, add func(string, itemData)) {
	child := itemData{"taskId": s.GetTraceId(), "contextId": s.GetSessionId(), "turnId": s.GetTurnId(), "requestId": s.GetRequestId(), "target": s.GetTarget()}
	waits := itemData{"state": "waiting-subtask", "stage": "execute", "taskId": s.GetTraceId()}
	if s.GetCallId() != "" {
		child["callId"], waits["callId"] = s.GetCallId(), s.GetCallId()
	}
	add("subtask-created", child)
	add("task-status", waits)
}

// addAgentMessageItems adds items for a message of an agent that is a function: its text, and the names of its artifacts
// and changed state keys. Values and bytes stay in the session. The text of a model arrives as deltas instead.
func addAgentMessageItems(m *troupev1.AgentMessage, add func(string, itemData)) {
	if m.GetText() != "" {
		add("message", itemData{"text": m.GetText()})
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetArtifacts())) {
		add(artifactItemKind(name), itemData{"name": name, "version": m.GetArtifacts()[name]})
	}
	if len(m.GetStateKeys()) > 0 {
		add("data-write", itemData{"keys": m.GetStateKeys()})
	}
}

// datasetExtensions are the file extensions of artifacts that contain rows of data.
var datasetExtensions = []string{".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"}

// artifactItemKind returns the item kind for a written artifact, which depends on its file extension.
func artifactItemKind(name string) string {
	if slices.Contains(datasetExtensions, strings.ToLower(path.Ext(name))) {
		return "dataset-write"
	}
	return "file-write"
}

// addTurnResultItems adds the items for the last event of a turn.
func addTurnResultItems(r *troupev1.TurnResult, add func(string, itemData)) {
	state := stateFromResult(r)
	status := itemData{"state": stateNames[state]}
	if f := r.GetFailure(); f != nil {
		status["reason"], status["message"] = lowerEnumName(f.GetMode().String(), "FAILURE_MODE_"), f.GetMessage()
	}
	if waits := askKinds[state]; waits != "" {
		add(waits, itemData{"text": r.GetText(), "pending": pendingCallsData(r.GetPending())})
		add("task-status", status)
		return
	}
	if r.GetIncomplete() != troupev1.IncompleteReason_INCOMPLETE_REASON_UNSPECIFIED {
		status["incomplete"] = lowerEnumName(r.GetIncomplete().String(), "INCOMPLETE_REASON_")
	}
	add("task-status", status)
	add("task-complete", addUsage(r.GetUsage(), itemData{"state": stateNames[state], "agent": r.GetAgent()}))
}

func pendingCallsData(calls []*troupev1.PendingCall) []itemData {
	waits := []itemData{}
	for _, c := range calls {
		waits = append(waits, pendingCallData(c))
	}
	return waits
}

// pendingCallData returns a pending tool call in the form that A2A clients receive.
func pendingCallData(c *troupev1.PendingCall) itemData {
	data := itemData{
		"id": c.GetId(), "callId": c.GetCallId(), "tool": c.GetTool(), "arguments": c.GetArguments(), "agent": c.GetAgent(),
		"needs": lowerEnumName(c.GetNeeds().String(), "CALL_NEED_"), "risk": c.GetRisk(), "reason": c.GetReason(),
	}
	if c.GetUntil() != nil {
		data["until"] = c.GetUntil().AsTime()
	}
	if a := c.GetAuth(); a != nil {
		data["auth"] = itemData{
			"authId": a.GetAuthId(), "name": a.GetName(), "prompt": a.GetPrompt(), "url": a.GetUrl(),
			"publicKey": base64.StdEncoding.EncodeToString(a.GetPublicKey()), "expires": a.GetExpires().AsTime(),
		}
	}
	return data
}
