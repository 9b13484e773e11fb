package openaitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// strictMessage is a message with all fields that OpenAI's API accepts in a conversation of texts and tool calls.
type strictMessage struct {
	Role       conversation.Role `json:"role"`
	Name       string            `json:"name"`
	Content    *string           `json:"content"`
	ToolCallID string            `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

var (
	functionName    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	participantName = regexp.MustCompile(`^[^\s<|\\/>]{1,64}$`)
)

// CheckMessages returns an error if OpenAI's API rejects the messages, a JSON array. It accepts no other fields than the API
// does. Each call needs exactly one tool message, in the order of the calls, before any other message follows.
func CheckMessages(messages []byte) error {
	var all []strictMessage
	decoder := json.NewDecoder(bytes.NewReader(messages))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("there are no messages")
	}
	var open []string // ids of the calls without a result
	for i, m := range all {
		if err := m.check(&open); err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("call %q has no tool message", open[0])
	}
	return nil
}

// check checks one message. open are the calls before it that have no result yet.
func (m strictMessage) check(open *[]string) error {
	switch {
	case m.Role == conversation.RoleTool:
		return m.checkResult(open)
	case len(*open) > 0:
		return fmt.Errorf("call %q has no tool message", (*open)[0])
	case !slices.Contains([]conversation.Role{conversation.RoleSystem, conversation.RoleUser, conversation.RoleAssistant}, m.Role):
		return fmt.Errorf("role %q is not known", m.Role)
	case m.Name != "" && !participantName.MatchString(m.Name):
		return fmt.Errorf("name %q is not allowed", m.Name)
	case m.Content == nil && len(m.ToolCalls) == 0:
		return errors.New("content is missing")
	case m.Role != conversation.RoleAssistant && len(m.ToolCalls) > 0, m.ToolCallID != "":
		return fmt.Errorf("a message with role %q has no calls", m.Role)
	}
	for _, c := range m.ToolCalls {
		if c.ID == "" || c.Type != "function" || !functionName.MatchString(c.Function.Name) {
			return fmt.Errorf("call %q of type %q of function %q is not allowed", c.ID, c.Type, c.Function.Name)
		}
		*open = append(*open, c.ID)
	}
	return nil
}

// checkResult checks a tool message, which is the result of the first open call.
func (m strictMessage) checkResult(open *[]string) error {
	switch {
	case len(*open) == 0:
		return fmt.Errorf("the tool message %q must follow a message with tool_calls", m.ToolCallID)
	case m.ToolCallID != (*open)[0]:
		return fmt.Errorf("the tool message of call %q belongs here, not of %q", (*open)[0], m.ToolCallID)
	case m.Content == nil:
		return errors.New("content is missing")
	}
	*open = (*open)[1:]
	return nil
}
