package storage

import (
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turn holds the data of a turn to store.
type Turn struct {
	ID, Trace   string
	Number      int
	UserMessage conversation.Message   // the user's message (zero when the user said nothing)
	Continues   string                 // id of the turn whose pending calls this one continues (empty for a new turn)
	Answers     []execution.Answer     // answers to the pending calls
	Messages    []conversation.Message // the agent's messages, in whole rounds
	State       map[string]json.RawMessage
	Result      execution.Result
	Outcome     session.Outcome
	Failure     *failure.Error // why the turn has no answer (nil if it has one)
	Files       []File         // artifacts that are not stored yet
}

// File is an artifact that is not stored yet.
type File struct {
	memory.Artifact
	Bytes []byte // not nil, except for an artifact that is stored
}

// AllMessages returns the messages of the turn. The user's message comes first.
func (t *Turn) AllMessages() []conversation.Message {
	if t.UserMessage.Role == "" {
		return t.Messages
	}
	return append([]conversation.Message{t.UserMessage}, t.Messages...)
}

// MarkFailed turns t into a failed turn without an answer. Its messages are kept and marked as partial (LP-17).
func (t *Turn) MarkFailed(outcome session.Outcome, why *failure.Error) {
	t.Outcome, t.Failure, t.State = outcome, why, nil
	for i := range t.Messages {
		t.Messages[i].Partial = true
	}
}

// HasAnswer reports whether the turn has an answer.
func (t *Turn) HasAnswer() bool { return IsAnswer(t.Outcome) }

// IsAnswer reports whether a turn with the outcome has an answer.
func IsAnswer(o session.Outcome) bool {
	return o != session.OutcomeFailed && o != session.OutcomeCancelled
}

// missingResultText is the tool result that the model reads for a call without a stored result.
const missingResultText = "Interrupted: the turn ended before the tool had a result."

// RepairToolCalls returns messages in which every tool call has exactly its result, because models require it. It
// adds missing results and removes results without a call. A failed turn may end inside a round, and a process may
// be lost while it stores a turn.
func RepairToolCalls(messages []conversation.Message) []conversation.Message {
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
			all = append(all, conversation.Message{Role: conversation.RoleTool, Text: missingResultText, ToolCallID: call.ID})
		}
	}
	return all
}
