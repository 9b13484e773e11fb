// Package chatformat converts conversations to the messages of OpenAI's Chat Completions API (CO-69), so that other tools
// can read them and any Chat Completions server accepts them.
package chatformat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Message is a message in the format of the API.
type Message struct {
	Role       conversation.Role `json:"role"`
	Name       string            `json:"name,omitempty"`
	Content    *string           `json:"content"` // (nil if the model only called tools)
	ToolCalls  []ToolCall        `json:"tool_calls,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
}

// ToolCall is a call of a tool in the format of the API.
type ToolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"` // always "function"
	Function Function `json:"function"`
}

// Function is the name and the arguments of a call.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // a JSON object
}

// Export converts a conversation as one agent saw it. The system prompt comes first, unless it is empty. An empty agent means
// that the conversation belongs to several agents.
//
//   - A message of another agent has the name of that agent. So has every message of an agent if several share the
//     conversation.
//   - A summary of removed messages becomes a message of the user, as it does for models.
//   - A file becomes a line with its name, type and size. Its content is an artifact of the session.
//   - A call without a result gets one that says so. The call may wait for an answer, or its turn was interrupted.
//   - Thoughts, opaque data of providers and marks of untrusted text are left out, because the format has no place for them.
//     An untrusted system message becomes a message of the user.
//   - Empty messages are left out.
func Export(system, agent string, messages []conversation.Message) []Message {
	var all []Message
	if strings.TrimSpace(system) != "" {
		all = append(all, Message{Role: conversation.RoleSystem, Content: &system})
	}
	for _, m := range toolrounds.Complete(messages) {
		text, _ := llm.SplitAttachments(m.WithoutData(), func(string) bool { return false })
		if text == "" && len(m.ToolCalls) == 0 && m.Role != conversation.RoleTool {
			continue
		}
		out := Message{Role: exportedRole(m), Content: &text}
		if m.Role == conversation.RoleTool {
			out.ToolCallID = m.ToolCallID
		}
		if m.Role == conversation.RoleAssistant {
			if m.Author != agent {
				out.Name = m.Author
			}
			for _, c := range m.ToolCalls {
				out.ToolCalls = append(out.ToolCalls, ToolCall{
					ID: c.ID, Type: "function", Function: Function{Name: functionName(c.Name), Arguments: cmp.Or(c.Arguments, "{}")},
				})
			}
			if text == "" {
				out.Content = nil
			}
		}
		all = append(all, out)
	}
	return all
}

func exportedRole(m conversation.Message) conversation.Role {
	if m.Role == conversation.RoleSummary {
		return conversation.RoleUser
	}
	return m.ReaderRole()
}

// maxFunctionName is the maximum length of a function's name in the API.
const maxFunctionName = 64

// functionName returns a name that the API accepts. A model may have called a tool that does not exist, by any name.
func functionName(tool string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, tool)
	return cmp.Or(name[:min(len(name), maxFunctionName)], "_")
}

// Write writes messages as a JSON array with one message per line. Characters that are not printable are written as escapes,
// so that no text can control a terminal.
func Write(w io.Writer, messages []Message) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	b.WriteString("[\n")
	for i, m := range messages {
		if i > 0 {
			b.Truncate(b.Len() - 1)
			b.WriteString(",\n")
		}
		if err := encoder.Encode(m); err != nil {
			return err
		}
	}
	b.WriteString("]\n")
	_, err := w.Write(escapeUnprintable(b.Bytes()))
	return err
}

// escapeUnprintable replaces the characters of a JSON text that are not printable by JSON escapes. Line breaks stay.
func escapeUnprintable(text []byte) []byte {
	isUnprintable := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	if !bytes.ContainsFunc(text, isUnprintable) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if !isUnprintable(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}
