package event

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// entry has the fields of the kinds that are kept in a trace, under the names that stand in
// traces and logs (CO-43 to CO-49).
type entry struct {
	ID     string    `json:"id"`
	Type   string    `json:"type"`
	Time   time.Time `json:"timestamp"`
	Author string    `json:"author,omitempty"`
	Branch string    `json:"branch,omitempty"`

	Turn   int    `json:"turn,omitempty"`
	Prompt string `json:"prompt,omitempty"`

	Model     string `json:"model,omitempty"`
	Iteration int    `json:"iteration,omitempty"`
	ToolCalls *int   `json:"tool_calls_count,omitempty"`
	Usage     *usage `json:"usage,omitempty"`
	Duration  *int64 `json:"duration_ms,omitempty"`
	Finish    Finish `json:"finish_reason,omitempty"`

	Tool      string          `json:"tool_name,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Status    ToolStatus      `json:"status,omitempty"`
	Result    *string         `json:"result,omitempty"`
	Timing    *int64          `json:"timing,omitempty"`
	Error     string          `json:"error,omitempty"`
	ErrorType string          `json:"error_type,omitempty"`

	Fraction *float64 `json:"fraction,omitempty"`

	Target  string `json:"target,omitempty"`
	Session string `json:"session_id,omitempty"`
	Request string `json:"request_id,omitempty"`
	Trace   string `json:"trace_id,omitempty"`
	TurnID  string `json:"turn_id,omitempty"`

	Pending string           `json:"pending_id,omitempty"`
	Needs   execution.Need   `json:"needs,omitempty"`
	Risk    execution.Effect `json:"risk,omitempty"`
	Until   time.Time        `json:"until,omitzero"`

	Text    string                     `json:"text,omitempty"`
	Topic   Topic                      `json:"kind,omitempty"`
	State   map[string]json.RawMessage `json:"state_delta,omitempty"`
	Files   map[string]int             `json:"artifact_delta,omitempty"`
	Reason  string                     `json:"reason,omitempty"`
	Message string                     `json:"message,omitempty"`

	Key       string          `json:"key,omitempty"`
	Owner     ownership.Owner `json:"owner,omitempty"`
	Actor     string          `json:"actor,omitempty"`
	Operation string          `json:"operation,omitempty"`
}

type usage struct {
	Input  int64    `json:"input_tokens"`
	Output int64    `json:"output_tokens"`
	Cost   *float64 `json:"cost,omitempty"` // US dollars; absent when it is not known
}

// MarshalJSON writes the event as an entry of a trace.
func (e Event) MarshalJSON() ([]byte, error) {
	out := entry{ID: e.ID(), Type: e.Kind(), Time: e.Time.UTC(), Author: e.Author, Branch: e.Branch}
	switch p := e.Payload.(type) {
	case UserInput:
		out.Turn, out.Prompt = p.Turn, p.Prompt
	case TextDelta:
		out.Text = p.Text
	case ModelCall:
		out.Model, out.Iteration, out.ToolCalls = p.Model, p.Iteration, &p.ToolCalls
		out.Usage, out.Duration, out.Finish = used(p.Usage), milliseconds(p.Duration), p.Finish
	case ToolStarted:
		out.Tool, out.CallID, out.Arguments = p.Tool, p.CallID, object(p.Arguments)
	case ToolFinished:
		out.Tool, out.CallID, out.Arguments, out.Iteration = p.Tool, p.CallID, object(p.Arguments), p.Iteration
		out.Status, out.Result, out.Timing = p.Status, &p.Result, milliseconds(p.Duration)
		if p.Status != ToolSuccess {
			out.Error, out.ErrorType = p.Result, p.ErrorType
		}
	case ToolProgress:
		out.Tool, out.CallID, out.Message, out.Fraction = p.Tool, p.CallID, p.Message, p.Fraction
	case SubtaskStarted:
		out.Target, out.Session, out.Request, out.Trace, out.TurnID, out.CallID = p.Target, p.Session, p.Request, p.Trace, p.Turn, p.CallID
	case ToolPending:
		out.Tool, out.CallID, out.Arguments, out.Status = p.Tool, p.CallID, object(p.Arguments), ToolWaiting
		out.Pending, out.Needs, out.Risk, out.Until, out.Message = p.ID, p.Needs, p.Risk, p.Until.UTC(), p.Reason
	case Appended:
		out.Text, out.Reason = p.Message.Text, string(p.Message.Role)
	case Message:
		out.Text, out.State, out.Files = p.Text, delta(p.State), p.Artifacts
	case Thinking:
		out.Text, out.Topic = p.Text, p.Topic
	case Warning:
		out.Reason, out.Message = p.Reason, p.Message
	case OwnershipViolation:
		out.Key, out.Owner, out.Actor, out.Operation = p.Key, p.Owner, p.Actor, p.Operation
	case Answer:
		out.Text, out.Reason, out.Iteration = p.Text, string(p.Reason), p.Iterations
	case TurnResult:
		out.Turn, out.Reason, out.ErrorType, out.Duration = p.Turn, string(p.Reason), p.ErrorType, milliseconds(p.Duration)
		if p.Usage != nil {
			out.Usage = used(*p.Usage)
		}
	}
	return json.Marshal(out)
}

func used(u execution.Usage) *usage {
	out := &usage{Input: u.InputTokens, Output: u.OutputTokens}
	if u.CostMicros > 0 {
		dollars := float64(u.CostMicros) / 1e6
		out.Cost = &dollars
	}
	return out
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// delta has a removed key as null.
func delta(state map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(state)
	for key, value := range out {
		if len(value) == 0 {
			out[key] = nil
		}
	}
	return out
}

// object is JSON as it is, and anything else as a JSON text.
func object(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil
	}
	return quoted
}
