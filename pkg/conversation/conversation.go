// Package conversation has the messages of a session and the tool calls in them.
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

// Role is the kind of author of a message.
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

	ToolCalls  []ToolCall // of an assistant message
	ToolCallID string     // of a tool message: id of the call that it answers
	Partial    bool       // written by a turn that failed afterwards

	Attachments []Attachment // files of a user's message

	// Untrusted names the first source of words in the message that neither the user nor the author of the agent
	// wrote, such as "tool http_fetch". It has at most MaxSource bytes. It is empty if there is no such source, or
	// if UntrustedSource finds it elsewhere in the message (S14, S15).
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

// CountFitting returns how many messages, from the first one on, have at most the given bytes of text together. It
// returns at least 1 if there are any.
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

// Cut returns the beginning of a text in at most the given bytes. It does not split characters.
func Cut(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes]
}

// Brief returns the beginning of a text on one line in at most the given characters, for lists and logs.
func Brief(text string, characters int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= characters {
		return string(runes)
	}
	return string(runes[:characters-1]) + "…"
}
