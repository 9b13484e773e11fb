// Package conversation is what is said in a session: messages, and the tool calls in
// them.
package conversation

import (
	"iter"
	"slices"
	"strings"
	"time"
)

// Limits of guarantees S9. Requests beyond them are refused before anything is written.
const (
	MaxMessageBytes = 256 << 10
	MaxTurnMessages = 64
)

// Role says who speaks in a message.
type Role string

// The roles. Only those of the user and of assistants are ever stored in a session;
// system and tool messages exist inside a step.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a conversation.
type Message struct {
	Sequence int64     // position in the session, from 1; 0 until it is stored
	Role     Role      //
	Author   string    // name of the agent that speaks; empty for the user
	Text     string    // UTF-8, at most MaxMessageBytes
	Turn     int       // number of the turn in which it was said; 0 until it is stored
	Time     time.Time // when it was stored

	ToolCalls  []ToolCall // of an assistant message inside a step
	ToolCallID string     // of a tool message: the call that it answers
}

// ToolCall is a model's wish to run a tool.
type ToolCall struct {
	ID        string // unique within the step
	Name      string
	Arguments string // a JSON object, as the model wrote it
}

// User returns a message of the user.
func User(text string) Message { return Message{Role: RoleUser, Text: text} }

// Assistant returns a message of an agent.
func Assistant(author, text string) Message {
	return Message{Role: RoleAssistant, Author: author, Text: text}
}

// LastUser returns the user's latest message, or the zero Message when there is none.
func LastUser(history []Message) Message {
	for _, m := range slices.Backward(history) {
		if m.Role == RoleUser {
			return m
		}
	}
	return Message{}
}

// Fit is how many of the messages, in the order given, have at most the given bytes of
// text together; at least one, when there is one.
func Fit(messages iter.Seq[Message], bytes int) int {
	n := 0
	for m := range messages {
		if bytes -= len(m.Text); bytes < 0 && n > 0 {
			break
		}
		n++
	}
	return n
}

// Transcript writes a history as lines "User: …" and "AI: …", the form in which agents
// quote it in prompts (RA-22, C-39).
func Transcript(history []Message) string {
	if len(history) == 0 {
		return "No previous conversation."
	}
	var b strings.Builder
	for i, m := range history {
		if i > 0 {
			b.WriteByte('\n')
		}
		if m.Role == RoleUser {
			b.WriteString("User: ")
		} else {
			b.WriteString("AI: ")
		}
		b.WriteString(m.Text)
	}
	return b.String()
}
