package storage

import (
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turn is a turn of a session as it is stored.
type Turn struct {
	ID, Trace   string
	Number      int
	UserMessage conversation.Message   // by the user (zero when the user said nothing)
	Continues   string                 // id of the turn whose calls wait (empty when there is none)
	Answers     []execution.Answer     // to these calls
	Messages    []conversation.Message // of the agent, in whole rounds
	State       map[string]json.RawMessage
	Result      execution.Result
	Outcome     session.Outcome
	Failure     *failure.Error // of a turn without an answer
	Files       []File         // artifacts that are not stored yet
}

// File is an artifact that is not stored yet.
type File struct {
	memory.Artifact
	Bytes []byte // not nil, except for an artifact that is stored
}

// AllMessages returns the messages of the turn, the user's first.
func (t *Turn) AllMessages() []conversation.Message {
	if t.UserMessage.Role == "" {
		return t.Messages
	}
	return append([]conversation.Message{t.UserMessage}, t.Messages...)
}

// Fail turns t into a failed turn without an answer. Its messages stay, marked as partial (LP-17).
func (t *Turn) Fail(outcome session.Outcome, why *failure.Error) {
	t.Outcome, t.Failure, t.State = outcome, why, nil
	for i := range t.Messages {
		t.Messages[i].Partial = true
	}
}

// HasAnswer reports whether the turn has an answer.
func (t *Turn) HasAnswer() bool { return IsAnswer(t.Outcome) }

// IsAnswer reports whether a turn with this outcome has an answer.
func IsAnswer(o session.Outcome) bool {
	return o != session.OutcomeFailed && o != session.OutcomeCancelled
}

// unanswered is the text that a model reads as the result of a tool call without one.
const unanswered = "Interrupted: the turn ended before the tool had a result."

// Repair returns messages in which every tool call has its result, as models require. Missing results are added, and
// results without a call are removed. Both occur: a turn that failed may end inside a round, and a process may be lost
// while it stores a turn.
func Repair(messages []conversation.Message) []conversation.Message {
	var all []conversation.Message
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == conversation.RoleTool {
			continue
		}
		all = append(all, m)
		for _, call := range m.ToolCalls {
			if i+1 < len(messages) && messages[i+1].Role == conversation.RoleTool && messages[i+1].ToolCallID == call.ID {
				i++
				all = append(all, messages[i])
				continue
			}
			all = append(all, conversation.Message{Role: conversation.RoleTool, Text: unanswered, ToolCallID: call.ID})
		}
	}
	return all
}
