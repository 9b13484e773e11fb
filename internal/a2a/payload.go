package a2a

import (
	"encoding/base64"
	"maps"
	"path"
	"slices"
	"strings"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// started is the first event of a turn: that of a task, or the input with which one goes on.
func started(p *troupev1.TurnStarted, goesOn bool, add func(string, facts)) {
	about := facts{"requestId": p.GetRequestId(), "turnId": p.GetTurnId(), "target": p.GetTarget()}
	if !goesOn {
		add("task-created", about)
		attached(p, add)
		return
	}
	answers := []facts{}
	for _, a := range p.GetAnswers() {
		answers = append(answers, facts{"id": a.GetId(), "verdict": verdict(a)})
	}
	about["answers"] = answers
	add("input-received", about)
	for _, a := range p.GetAnswers() {
		if a.GetAuthId() != "" {
			add("auth-completed", facts{"id": a.GetId(), "authId": a.GetAuthId(), "verdict": verdict(a)})
		}
	}
	attached(p, add)
	add("task-status", facts{"state": "working", "stage": "initialize"})
}

// attached are the files of the user: artifacts like others from here on.
func attached(p *troupev1.TurnStarted, add func(string, facts)) {
	for _, f := range p.GetAttachments() {
		add(writes(f.GetName()), facts{"name": f.GetName(), "version": f.GetArtifact().GetVersion()})
	}
}

// verdict is what becomes of a call that was answered.
func verdict(a *troupev1.CallAnswer) string {
	if a.GetLate() {
		return "deny"
	}
	return lower(a.GetVerdict().String(), "CALL_VERDICT_")
}

// finish says why the model stopped: stop, length, tool_calls or content_filter. Of one that did
// not say, the calls that it left tell.
func finish(m *troupev1.ModelCall) string {
	if said := m.GetFinish(); said != troupev1.FinishReason_FINISH_REASON_UNSPECIFIED {
		return lower(said.String(), "FINISH_REASON_")
	}
	if m.GetToolCalls() > 0 {
		return "tool_calls"
	}
	return "stop"
}

// progress is how far a tool is.
func progress(p *troupev1.ToolProgress, add func(string, facts)) {
	told := facts{"callId": p.GetCallId(), "tool": p.GetTool(), "message": p.GetMessage()}
	if p.Fraction != nil {
		told["fraction"] = p.GetFraction()
	}
	add("tool-progress", told)
}

// subtask is a turn that works for this one: a task of its own, below this one. The agent waits
// for it, though others beside it may work; so the state of A2A stays working.
func subtask(s *troupev1.SubtaskStarted, add func(string, facts)) {
	child := facts{"taskId": s.GetTraceId(), "contextId": s.GetSessionId(), "turnId": s.GetTurnId(), "requestId": s.GetRequestId(), "target": s.GetTarget()}
	waits := facts{"state": "waiting-subtask", "stage": "execute", "taskId": s.GetTraceId()}
	if s.GetCallId() != "" {
		child["callId"], waits["callId"] = s.GetCallId(), s.GetCallId()
	}
	add("subtask-created", child)
	add("task-status", waits)
}

// message is what an agent says or changes beside the words of its model. The values and the
// bytes are with the session.
func message(m *troupev1.AgentMessage, add func(string, facts)) {
	if m.GetText() != "" {
		add("message", facts{"text": m.GetText()})
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetArtifacts())) {
		add(writes(name), facts{"name": name, "version": m.GetArtifacts()[name]})
	}
	if len(m.GetStateKeys()) > 0 {
		add("data-write", facts{"keys": m.GetStateKeys()})
	}
}

// datasets are the ends of names of artifacts that are rows, one like the other.
var datasets = []string{".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"}

// writes is the kind of what wrote an artifact of that name.
func writes(name string) string {
	if slices.Contains(datasets, strings.ToLower(path.Ext(name))) {
		return "dataset-write"
	}
	return "file-write"
}

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
	if a := c.GetAuth(); a != nil {
		told["auth"] = facts{
			"authId": a.GetAuthId(), "name": a.GetName(), "prompt": a.GetPrompt(), "url": a.GetUrl(),
			"publicKey": base64.StdEncoding.EncodeToString(a.GetPublicKey()), "expires": a.GetExpires().AsTime(),
		}
	}
	return told
}
