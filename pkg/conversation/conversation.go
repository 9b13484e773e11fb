// Package conversation defines the messages of a session and the tool calls in them.
package conversation

import (
	"iter"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxMessageBytes is the limit of one message's text (guarantee S9). Requests beyond it are rejected before anything is
// written.
const MaxMessageBytes = 256 << 10

// Role says who wrote a message.
type Role string

// The roles. A session stores the final answer of an agent; a worker may also store the tool rounds of a step. System
// messages exist only inside a step.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
	RoleSummary   Role = "summary" // summary of messages that a compaction removed; only stores write it
)

// Message is one entry of a conversation.
type Message struct {
	Sequence int64     // position in the session, from 1 (0 until it is stored)
	Role     Role      //
	Author   string    // name of the agent (empty for the user)
	Text     string    // UTF-8, at most MaxMessageBytes
	Turn     int       // number of its turn (0 until it is stored)
	Time     time.Time // when it was stored

	ToolCalls  []ToolCall // calls in an assistant message
	ToolCallID string     // id of the call that a tool message answers
	Partial    bool       // the turn that wrote the message failed later

	Attachments []Attachment // files of a user's message or of a tool result

	// Untrusted names the first source of text in the message that neither the user nor the author of the agent
	// wrote, such as "tool http_fetch". It has at most MaxSourceBytes. It is empty if there is no such source, or
	// if UntrustedSource can derive it from the rest of the message (S14, S15).
	Untrusted string `json:",omitempty"`
}

// ToolCall is a model's request to run a tool.
type ToolCall struct {
	ID        string // unique within the step
	Name      string
	Arguments string // JSON object, as the model wrote it
	Extra     string // opaque data that the provider needs back with the call, at most 64 KiB (CO-11)
}

// User returns a message of the user.
func User(text string) Message { return Message{Role: RoleUser, Text: text} }

// Assistant returns a message of an agent.
func Assistant(author, text string) Message {
	return Message{Role: RoleAssistant, Author: author, Text: text}
}

// CountFitting returns how many messages, counted from the first, fit into the given number of bytes of text. It
// returns at least 1 unless there are no messages.
func CountFitting(messages iter.Seq[Message], bytes int) int {
	n := 0
	for m := range messages {
		if bytes -= len(m.Text); bytes < 0 && n > 0 {
			break
		}
		n++
	}
	return n
}

// CutToLimit returns the message with as much of its text as MaxMessageBytes allows besides its tool calls, and reports
// whether it was cut. Everything that an agent or its model says is cut by it, so all stores keep the same text.
func (m Message) CutToLimit() (_ Message, wasCut bool) {
	text := Truncate(m.Text, max(0, MaxMessageBytes-Size(m)+len(m.Text)))
	wasCut = len(text) < len(m.Text)
	m.Text = text
	return m, wasCut
}

// Truncate returns the beginning of a text, at most the given number of bytes long. It does not split characters.
func Truncate(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes]
}

// Excerpt returns the beginning of a text as one line, at most the given number of characters long, for lists and
// logs.
func Excerpt(text string, characters int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= characters {
		return string(runes)
	}
	return string(runes[:characters-1]) + "…"
}
