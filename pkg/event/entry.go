package event

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// header holds the fields that every trace entry begins with.
type header struct {
	ID     string    `json:"id"`
	Type   string    `json:"type"`
	Time   time.Time `json:"timestamp"`
	Author string    `json:"author,omitempty"`
	Branch string    `json:"branch,omitempty"`
}

// These structs hold the other fields of a trace entry, one for each kind of event. Their JSON names come from
// CO-43 to CO-49.
type (
	userInputEntry struct {
		Turn   int    `json:"turn,omitempty"`
		Prompt string `json:"prompt,omitempty"`
	}
	filesEntry struct {
		Files []fileEntry `json:"files"`
	}
	fileEntry struct {
		Name      string `json:"name"`
		MediaType string `json:"media_type,omitempty"`
		Size      int64  `json:"size"`
		Version   int    `json:"version,omitempty"`
	}
	planEntry struct {
		Tasks []taskEntry `json:"tasks"`
	}
	taskEntry struct {
		Agent string `json:"agent"`
		Text  string `json:"text"`
	}
	errorEntry struct {
		Error     string `json:"error"`
		ErrorType string `json:"error_type"`
	}
	textEntry struct {
		Text   string `json:"text,omitempty"`
		Reason string `json:"reason,omitempty"`
	}
	modelCallEntry struct {
		Model     string  `json:"model,omitempty"`
		Iteration int     `json:"iteration,omitempty"`
		ToolCalls int     `json:"tool_calls_count"`
		Usage     *usage  `json:"usage"`
		Duration  float64 `json:"duration_ms"`
		Finish    Finish  `json:"finish_reason,omitempty"`
	}
	callEntry struct {
		Tool      string          `json:"tool_name,omitempty"`
		CallID    string          `json:"call_id,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	}
	toolStartedEntry struct {
		callEntry
		Status ToolStatus `json:"status"`
	}
	toolFinishedEntry struct {
		Iteration int `json:"iteration,omitempty"`
		callEntry
		Status    ToolStatus `json:"status,omitempty"`
		Result    string     `json:"result"`
		Timing    float64    `json:"timing"`
		Error     string     `json:"error,omitempty"`
		ErrorType string     `json:"error_type,omitempty"`

		Files      map[string]int  `json:"artifacts,omitempty"` // versions by name
		Structured json.RawMessage `json:"structured,omitempty"`
	}
	toolProgressEntry struct {
		Tool     string   `json:"tool_name,omitempty"`
		CallID   string   `json:"call_id,omitempty"`
		Fraction *float64 `json:"fraction,omitempty"`
		Message  string   `json:"message,omitempty"`
	}
	toolPendingEntry struct {
		callEntry
		Status  ToolStatus       `json:"status,omitempty"`
		Pending string           `json:"pending_id,omitempty"`
		Needs   execution.Need   `json:"needs,omitempty"`
		Risk    execution.Effect `json:"risk,omitempty"`
		Until   time.Time        `json:"until,omitzero"`
		Message string           `json:"message,omitempty"`
	}
	subtaskEntry struct {
		CallID  string `json:"call_id,omitempty"`
		Target  string `json:"target,omitempty"`
		Session string `json:"session_id,omitempty"`
		Request string `json:"request_id,omitempty"`
		Trace   string `json:"trace_id,omitempty"`
		TurnID  string `json:"turn_id,omitempty"`
	}
	messageEntry struct {
		Text  string                     `json:"text,omitempty"`
		State map[string]json.RawMessage `json:"state_delta,omitempty"`
		Files map[string]int             `json:"artifact_delta,omitempty"`
	}
	artifactEntry struct {
		Name      string `json:"artifact"`
		MediaType string `json:"media_type,omitempty"`
		Version   int    `json:"version,omitempty"`
		Size      int64  `json:"size"`
		Append    bool   `json:"append,omitempty"`
		Complete  bool   `json:"complete,omitempty"`
	}
	thinkingEntry struct {
		Text  string `json:"content,omitempty"`
		Topic Topic  `json:"kind,omitempty"`
	}
	customEntry struct {
		Name string          `json:"name"`
		Data json.RawMessage `json:"data,omitempty"`
	}
	warningEntry struct {
		Reason  string `json:"reason,omitempty"`
		Message string `json:"message,omitempty"`
	}
	violationEntry struct {
		Key       string          `json:"key,omitempty"`
		Owner     ownership.Owner `json:"owner,omitempty"`
		Actor     string          `json:"actor,omitempty"`
		Operation string          `json:"operation,omitempty"`
	}
	answerEntry struct {
		Iteration int    `json:"iteration,omitempty"`
		Text      string `json:"content"`
		Reason    string `json:"reason,omitempty"`
	}
	turnResultEntry struct {
		Turn      int     `json:"turn,omitempty"`
		Usage     *usage  `json:"usage,omitempty"`
		Duration  float64 `json:"duration_ms"`
		ErrorType string  `json:"error_type,omitempty"`
		Reason    string  `json:"reason,omitempty"`
	}
)

type usage struct {
	Input  int64    `json:"input_tokens"`
	Output int64    `json:"output_tokens"`
	Cost   *float64 `json:"cost,omitempty"` // US dollars (absent when unknown)
}

// MarshalJSON encodes the event as a trace entry: first the header, then the fields of its kind.
func (e Event) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(header{ID: e.ID(), Type: e.Kind(), Time: e.Time.UTC(), Author: e.Author, Branch: e.Branch})
	made, ok := e.Payload.(interface{ entry() any })
	if err != nil || !ok {
		return out, err
	}
	more, err := json.Marshal(made.entry())
	if err != nil || len(more) == len("{}") {
		return out, err
	}
	return append(append(out[:len(out)-1], ','), more[1:]...), nil
}

// entry returns the fields of a trace entry without its header.
func (p UserInput) entry() any { return userInputEntry(p) }

func (p FilesReceived) entry() any {
	out := filesEntry{Files: []fileEntry{}}
	for _, f := range p.Files {
		out.Files = append(out.Files, fileEntry{Name: f.Name, MediaType: f.MediaType, Size: f.Size, Version: f.Version})
	}
	return out
}

func (p PlanMade) entry() any {
	out := planEntry{Tasks: []taskEntry{}}
	for _, t := range p.Tasks {
		out.Tasks = append(out.Tasks, taskEntry(t))
	}
	return out
}

func (p Error) entry() any { return errorEntry{Error: p.Message, ErrorType: p.Type} }

func (p TextDelta) entry() any { return textEntry{Text: p.Text} }

func (p ModelCall) entry() any {
	return modelCallEntry{
		Model: p.Model, Iteration: p.Iteration, ToolCalls: p.ToolCalls, Usage: toUsage(p.Usage),
		Duration: milliseconds(p.Duration), Finish: p.Finish,
	}
}

func (p ToolStarted) entry() any {
	return toolStartedEntry{callEntry{p.Tool, p.CallID, jsonObject(p.Arguments)}, ToolRunning}
}

func (p ToolProgress) entry() any {
	return toolProgressEntry{Tool: p.Tool, CallID: p.CallID, Fraction: p.Fraction, Message: p.Message}
}

func (p SubtaskStarted) entry() any {
	return subtaskEntry{CallID: p.CallID, Target: p.Target, Session: p.Session, Request: p.Request, Trace: p.Trace, TurnID: p.Turn}
}

func (p ArtifactUpdate) entry() any {
	return artifactEntry{p.Name, p.MediaType, p.Version, p.Size, p.Append, p.Complete}
}

func (p ToolPending) entry() any {
	return toolPendingEntry{
		callEntry: callEntry{p.Tool, p.CallID, jsonObject(p.Arguments)}, Status: ToolWaiting, Pending: p.ID, Needs: p.Needs,
		Risk: p.Risk, Until: p.Until.UTC(), Message: p.Reason,
	}
}

func (p MessageAppended) entry() any {
	return textEntry{Text: p.Message.Text, Reason: string(p.Message.Role)}
}

func (p Message) entry() any {
	return messageEntry{Text: p.Text, State: stateChanges(p.State), Files: p.Artifacts}
}

func (p Thinking) entry() any { return thinkingEntry{Text: p.Text, Topic: p.Topic} }

func (p Custom) entry() any { return customEntry(p) }

func (p Warning) entry() any { return warningEntry{Reason: p.Reason, Message: p.Message} }

func (p OwnershipViolation) entry() any { return violationEntry(p) }

func (p Answer) entry() any {
	return answerEntry{Iteration: p.Iterations, Text: p.Text, Reason: string(p.Reason)}
}

func (r TurnResult) entry() any {
	out := turnResultEntry{Turn: r.Turn, Duration: milliseconds(r.Duration), ErrorType: r.ErrorType, Reason: string(r.Reason)}
	if r.Usage != nil {
		out.Usage = toUsage(*r.Usage)
	}
	return out
}

func (p ToolFinished) entry() any {
	out := toolFinishedEntry{
		Iteration: p.Iteration, callEntry: callEntry{p.Tool, p.CallID, jsonObject(p.Arguments)},
		Status: p.Status, Result: p.Result, Timing: milliseconds(p.Duration), Structured: p.Structured,
	}
	for _, f := range p.Attachments {
		if out.Files == nil {
			out.Files = map[string]int{}
		}
		out.Files[f.Name] = f.Version
	}
	if p.Status != ToolSuccess {
		out.Error, out.ErrorType = p.Result, p.ErrorType
	}
	return out
}

// milliseconds returns a duration in milliseconds, with microseconds as its fraction (CO-70).
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func toUsage(u execution.Usage) *usage {
	out := &usage{Input: u.InputTokens, Output: u.OutputTokens}
	if u.CostMicros > 0 {
		dollars := float64(u.CostMicros) / 1e6
		out.Cost = &dollars
	}
	return out
}

// stateChanges encodes changes of state as JSON, with null for each removed key.
func stateChanges(state map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(state)
	for key, value := range out {
		if len(value) == 0 {
			out[key] = nil
		}
	}
	return out
}

// jsonObject returns valid JSON unchanged and any other text as a JSON string.
func jsonObject(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil
	}
	return quoted
}
