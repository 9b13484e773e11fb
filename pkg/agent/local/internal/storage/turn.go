package storage

import (
	"encoding/json"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turn holds the data of a turn to store.
type Turn struct {
	ID, Trace     string
	Number        int
	UserMessage   conversation.Message   // the user's message (zero when the user said nothing)
	Continues     string                 // id of the turn whose pending calls this one continues (empty for a new turn)
	Answers       []execution.Answer     // answers to the pending calls
	Messages      []conversation.Message // what the agent said in the conversation
	RoundMessages []memory.RoundMessage  // messages of its tool rounds, whole rounds only, for the history of the agent
	State         map[string]json.RawMessage
	Expected      map[string]int64 // revisions that keys of State must still have
	Rebase        hookstore.Rebase // repeats the changes of these keys
	Result        execution.Result
	Outcome       session.Outcome
	Failure       *failure.Error // why the turn has no answer (nil if it has one)
	Files         []File         // artifacts that are not stored yet
}

// File is an artifact that is not stored yet.
type File struct {
	memory.Artifact
	Bytes []byte // not nil, except for an artifact that is stored
}

// AllMessages returns what the turn adds to the conversation. The user's message comes first.
func (t *Turn) AllMessages() []conversation.Message {
	return append(t.UserMessages(), t.Messages...)
}

// UserMessages returns the user's message, or none if the user said nothing.
func (t *Turn) UserMessages() []conversation.Message {
	if t.UserMessage.Role == "" {
		return nil
	}
	return []conversation.Message{t.UserMessage}
}

// UntrustedSource returns the gravest source of untrusted text that the turn has read or written (empty means none).
func (t *Turn) UntrustedSource() string {
	source := conversation.MostRestrictiveSource(conversation.UntrustedSource(t.AllMessages()), t.Result.Untrusted)
	for _, r := range t.RoundMessages {
		source = conversation.MostRestrictiveSource(source, r.UntrustedSource())
	}
	return source
}

// SetRounds sets the rounds of a turn from what its model saw besides the conversation.
func (t *Turn) SetRounds(messages []conversation.Message) {
	t.RoundMessages = toolrounds.Latest(messages)
}

// SetSaid sets the messages and the rounds of a turn that failed from what the agent had said until then. Text at the
// end belongs to the conversation, and what comes before it to the rounds.
func (t *Turn) SetSaid(said []conversation.Message) {
	said = toolrounds.Complete(said)
	n := len(said)
	for n > 0 && said[n-1].Role == conversation.RoleAssistant && len(said[n-1].ToolCalls) == 0 {
		n--
	}
	t.RoundMessages, t.Messages = toolrounds.Latest(said[:n]), said[n:]
}

// MarkFailed turns t into a failed turn without an answer. Its messages are kept and marked as partial (LP-17).
func (t *Turn) MarkFailed(outcome session.Outcome, why *failure.Error) {
	t.Outcome, t.Failure, t.State, t.Expected, t.Rebase = outcome, why, nil, nil, nil
	for i := range t.Messages {
		t.Messages[i].Partial = true
	}
	for i := range t.RoundMessages {
		t.RoundMessages[i].Partial = true
	}
}

// HasAnswer reports whether the turn has an answer.
func (t *Turn) HasAnswer() bool { return IsAnswer(t.Outcome) }

// IsAnswer reports whether a turn with the outcome has an answer.
func IsAnswer(o session.Outcome) bool {
	return o != session.OutcomeFailed && o != session.OutcomeCancelled
}
