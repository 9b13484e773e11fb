package event

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/internal/errortype"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// UserInput reports the user's message that begins a turn (CO-43).
type UserInput struct {
	Turn   int // number of the turn in the session, from 1
	Prompt string
}

// FilesReceived reports the files of the user's message (CO-48). It follows UserInput.
type FilesReceived struct{ Files []conversation.Attachment } // without their content

// TextDelta is a piece of text as the model produces it. It is not stored.
type TextDelta struct{ Text string }

// ModelCall reports a finished model call (CO-44).
type ModelCall struct {
	Model     string
	Iteration int // number of the iteration in the step, from 1 (0 for a call of a handler)
	ToolCalls int // number of tool calls in the reply
	Usage     execution.Usage
	Duration  time.Duration
	Replayed  bool   // an earlier attempt made the call and reported it
	Finish    Finish // why the model stopped (empty when unknown or replayed)
}

// Finish says why a model stopped (LP-29).
type Finish string

// The reasons why a model stops.
const (
	FinishStop   Finish = "stop"           // the model finished its answer
	FinishLength Finish = "length"         // the model reached its limit of output tokens
	FinishCalls  Finish = "tool_calls"     // the model waits for the results of its tool calls
	FinishFilter Finish = "content_filter" // the model declined, or a filter of the provider stopped it
	FinishOther  Finish = "other"          // the provider gave a reason that its adapter does not know
)

// ToolStarted reports that a tool starts to run.
type ToolStarted struct {
	CallID    string
	Tool      string
	Arguments string // a JSON object
}

// ToolStatus says how a tool call ended.
type ToolStatus string

// The statuses of a tool call (CO-45, CO-47). ToolUnknownOutcome is for calls of a worker that was lost.
const (
	ToolSuccess        ToolStatus = "success"
	ToolError          ToolStatus = "error"
	ToolNotFound       ToolStatus = "not_found"
	ToolInterrupted    ToolStatus = "interrupted"     // the turn was stopped before the tool finished or began
	ToolAsked          ToolStatus = "input_required"  // the tool asks the user, and the turn ends with the question
	ToolRunning        ToolStatus = "running"         // has no ToolFinished yet
	ToolWaiting        ToolStatus = "waiting"         // the call waits for an answer from outside the turn; it has not run, and has no ToolFinished
	ToolUnknownOutcome ToolStatus = "unknown_outcome" // in doubt: the tool may run at most once, and may have run
)

// Progress returns how far a call is for clients that need no more: in_progress, completed or failed (CO-50).
func (s ToolStatus) Progress() string {
	switch s {
	case ToolSuccess, ToolAsked:
		return "completed"
	case ToolError, ToolNotFound, ToolInterrupted, ToolUnknownOutcome:
		return "failed"
	default:
		return "in_progress"
	}
}

// ToolFinished reports how a tool call ended (CO-45). Each ToolStarted has exactly one ToolFinished. If an earlier
// attempt has reported the call, there is only the ToolFinished.
type ToolFinished struct {
	CallID    string
	Tool      string
	Arguments string // JSON object that the tool received
	Iteration int
	Status    ToolStatus
	Result    string // the result, or the error if the status is not success
	Summary   string // short form of the result or the error
	ErrorType string // failure mode of the error, the name that it gives itself, or its Go type (empty without an error, CO-71)
	Duration  time.Duration
	Replayed  bool // an earlier attempt ran the tool and reported it

	Attachments []conversation.Attachment // files of the result, without their content (CO-74)
	Structured  json.RawMessage           // structured form of the result (nil for none, CO-39c)
}

// ToolProgress reports the progress of a running tool call (LP-29). It is not stored.
type ToolProgress struct {
	CallID   string
	Tool     string
	Message  string   // at most MaxSummaryChars characters; may be empty
	Fraction *float64 // the completed part, 0 to 1 (nil when unknown)
}

// SubtaskStarted reports that a remote agent has started to work for this agent, in a turn of its own (LP-29).
type SubtaskStarted struct {
	Target  string // name of the remote agent or workflow
	Session string
	Request string // id of the request, with which it can be repeated
	Trace   string
	Turn    string // id of the remote turn
	CallID  string // id of the tool call (empty when the agent is not called as a tool)
}

// ArtifactUpdate reports that an artifact of the session was begun, has grown, or is complete (LP-44).
type ArtifactUpdate struct {
	Name      string
	MediaType string
	Version   int    // (0 until it is complete)
	Size      int64  // bytes so far
	Data      []byte // bytes that were added (nil if it has more than MaxUpdateBytes, or was stored at once: load it)
	Append    bool   // whether an update came before
	Complete  bool   // whether it is stored
}

// IsTransient reports whether an event is only for clients that listen now and is not stored in the trace.
func IsTransient(p Payload) bool {
	switch p.(type) {
	case TextDelta, ToolProgress:
		return true
	default:
		return false
	}
}

// ToolPending reports a tool call that needs an answer from outside the turn, so the turn ends. Until the answer
// arrives, the call has neither a ToolStarted nor a ToolFinished.
type ToolPending struct{ execution.Pending }

// MessageAppended reports a message that was added to the agent's copy of the conversation (CO-28, CO-33).
type MessageAppended struct{ Message conversation.Message }

// Message reports text or changes that did not come from the agent's model. It is the reply of a callback (AD-4,
// AD-12), or a change of state or artifacts by a handler or a tool (AD-6).
type Message struct {
	Text      string
	State     map[string]json.RawMessage // an empty value removes the key
	Artifacts map[string]int             // version of each changed artifact, by name
	Escalate  bool                       // stops the nearest enclosing Repeat after this agent (AD-22); for agents that yield their own events
}

// Thinking reports a plan or a reflection of an agent, or the reasoning of its model (CO-48).
type Thinking struct {
	Topic Topic
	Text  string
}

// Topic says what a Thinking event contains.
type Topic string

// The topics.
const (
	Plan       Topic = "plan"
	Reflection Topic = "reflection"
	Reasoning  Topic = "reasoning" // reasoning of the model before its answer, as the provider sends it
)

// Custom is an event of a kind that the author of the agent defines (AD-37). Handlers emit it with Turn.Emit, and an agent
// with a function may yield it.
type Custom struct {
	Name string          // of the kind: 1 to 64 of a-z, 0-9, '.', '_' and '-', a letter first
	Data json.RawMessage // a JSON value of at most MaxCustomData bytes (empty for none)
}

// Warning reports a problem that a person should know about. The turn continues.
type Warning struct {
	Reason  string // code for programs, in UPPER_SNAKE case
	Message string // one sentence, for a person
	Tool    string // the tool about which the guard warns (empty in all other warnings)
}

// OwnershipViolation reports a rejected write to state of another owner (SO-6, SO-7). The write changed nothing.
// The turn continues unless the writer ends it.
type OwnershipViolation struct {
	Key       string
	Owner     ownership.Owner
	Actor     string // who attempted the write
	Operation string // the rejected operation, such as "ownership.set"
}

// ViolationFromError returns the ownership violation that an error reports. It returns false for other errors.
func ViolationFromError(err error) (OwnershipViolation, bool) {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || !e.IsViolation() {
		return OwnershipViolation{}, false
	}
	return OwnershipViolation{
		Key: e.Facts[failure.FactKey], Owner: ownership.Owner(e.Facts[failure.FactOwner]), Actor: e.Facts[failure.FactActor], Operation: e.Op,
	}, true
}

// Reason is the reason why a turn ended (CO-49).
type Reason string

// The reasons why a turn ends. A turn that ends for one of the first four has an answer.
const (
	Natural       Reason = "natural"        // the model finished without further tool calls
	MaxIterations Reason = "max_iterations" // the limit of iterations was reached; the turn still has an answer (C-8)
	InputRequired Reason = "input_required" // the answer is a question to the user
	Stopped       Reason = "stopped"        // a person or a handler stopped the turn (CO-63)
	Interrupted   Reason = "interrupted"    // the context of the turn ended
	Failed        Reason = "error"
)

// PlanMade reports the tasks that a planning step requests (CO-48).
type PlanMade struct{ Tasks []execution.PlannedTask }

// Error reports why a turn failed (CO-48). TurnResult follows it.
type Error struct {
	Type    string // as ErrorType in ToolFinished
	Message string // for users: an error that is no failure.Error may contain secrets, and its text is left out
}

// Answer is the last event of a model loop that succeeded (CO-48).
type Answer struct {
	Text       string
	Reason     Reason
	Iterations int
	Pending    []execution.Pending // pending calls; only with InputRequired
	Incomplete Finish              // FinishLength, FinishFilter or FinishOther if the model's Text may be incomplete (empty means it is complete)
	// Tasks are the tasks that a planning step requests next (none for a model loop).
	Tasks []execution.PlannedTask
}

// TurnResult is the last event of every turn, even of one that failed (CO-49). If the turn failed, the error comes
// after it.
type TurnResult struct {
	Turn      int
	Reason    Reason
	Usage     *execution.Usage // usage of the turn (nil when unknown)
	ErrorType string           // as in ToolFinished; only the error itself has its text
	Duration  time.Duration
	Result    execution.Result
	Messages  []conversation.Message     // messages to store with the result
	Rounds    []conversation.Message     // what the agent's model saw besides the session's messages, in whole rounds, for its history (LP-45)
	State     map[string]json.RawMessage // all changes of state to store with the result
	Expected  map[string]int64           // revisions that user: and app: keys in State must still have (-1: their changes must be repeated first)
	Ended     bool                       // a handler ended only this agent; its siblings in a flow continue (AD-8)
	Escalate  bool                       // stops the nearest enclosing Repeat of the agent (AD-22, AD-28)
	// Rebase repeats the changes of the keys in Expected on other values and revisions. It also returns the keys of
	// which it overwrites a changed value. It is nil if Expected is empty.
	Rebase func(values map[string]json.RawMessage, revisions map[string]int64) (state map[string]json.RawMessage, overwritten []string, _ error)
}

// SetError sets the reason and the error type of a turn that failed with err.
func (r *TurnResult) SetError(err error) {
	r.Reason, r.ErrorType = Failed, errortype.Of(err)
	if failure.Is(err, failure.UserCancelled, failure.AgentTimeout) {
		r.Reason = Interrupted
	}
}

// Kind implements Payload.
func (UserInput) Kind() string { return "user_input" }

// Kind implements Payload.
func (TextDelta) Kind() string { return "text_delta" }

// Kind implements Payload.
func (ModelCall) Kind() string { return "llm_call" }

// Kind implements Payload.
func (ToolStarted) Kind() string { return "tool_call" }

// Kind implements Payload.
func (ToolFinished) Kind() string { return "tool_execution" }

// Kind implements Payload.
func (ToolProgress) Kind() string { return "tool_progress" }

// Kind implements Payload.
func (SubtaskStarted) Kind() string { return "subtask" }

// Kind implements Payload.
func (ArtifactUpdate) Kind() string { return "artifact_update" }

// Kind implements Payload.
func (ToolPending) Kind() string { return "tool_pending" }

// Kind implements Payload.
func (MessageAppended) Kind() string { return InternalPrefix + "appended" }

// Kind implements Payload.
func (Message) Kind() string { return "message" }

// Kind implements Payload.
func (Thinking) Kind() string { return "thinking" }

// Kind implements Payload.
func (Custom) Kind() string { return "custom" }

// Kind implements Payload.
func (Warning) Kind() string { return "warning" }

// Kind implements Payload.
func (OwnershipViolation) Kind() string { return "ownership_violation" }

// Kind implements Payload.
func (Answer) Kind() string { return "assistant" }

// Kind implements Payload.
func (FilesReceived) Kind() string { return "files_received" }

// Kind implements Payload.
func (PlanMade) Kind() string { return "plan" }

// Kind implements Payload.
func (Error) Kind() string { return "error" }

// Kind implements Payload.
func (TurnResult) Kind() string { return "turn_result" }
