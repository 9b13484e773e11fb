package wire

import (
	"strings"

	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// messageRoles maps the roles of stored messages. System messages are missing because they never leave a step.
var messageRoles = convert.Enum[conversation.Role, troupev1.Role]{
	conversation.RoleUser:      troupev1.Role_ROLE_USER,
	conversation.RoleAssistant: troupev1.Role_ROLE_ASSISTANT,
	conversation.RoleTool:      troupev1.Role_ROLE_TOOL,
	conversation.RoleSummary:   troupev1.Role_ROLE_SUMMARY,
}

// MessageToProto converts a message. The text becomes one part, and so does each attachment. A message that
// contains only tool calls has no parts.
func MessageToProto(m conversation.Message) *troupev1.Message {
	p := &troupev1.Message{
		Sequence:   m.Sequence,
		Role:       messageRoles.ToProto(m.Role),
		Author:     m.Author,
		Turn:       int32(m.Turn),
		Time:       convert.TimeToProto(m.Time),
		ToolCalls:  convert.All(m.ToolCalls, callToProto),
		ToolCallId: m.ToolCallID,
		Partial:    m.Partial,
		Untrusted:  m.Untrusted,
	}
	if m.Text != "" || len(m.ToolCalls) == 0 && len(m.Attachments) == 0 {
		p.Parts = []*troupev1.Part{{Content: &troupev1.Part_Text{Text: m.Text}}}
	}
	p.Parts = append(p.Parts, AttachmentsToProto(m.Attachments)...)
	return p
}

func callToProto(c conversation.ToolCall) *troupev1.ToolCall {
	return &troupev1.ToolCall{Id: c.ID, Name: c.Name, Arguments: c.Arguments, Extra: c.Extra}
}

func callFromProto(c *troupev1.ToolCall) conversation.ToolCall {
	return conversation.ToolCall{ID: c.GetId(), Name: c.GetName(), Arguments: c.GetArguments(), Extra: c.GetExtra()}
}

// MessageFromProto converts a message and joins the text of all its parts.
func MessageFromProto(m *troupev1.Message) conversation.Message {
	return conversation.Message{
		Sequence:   m.GetSequence(),
		Role:       messageRoles.FromProto(m.GetRole()),
		Author:     m.GetAuthor(),
		Text:       joinText(m.GetParts()),
		Turn:       int(m.GetTurn()),
		Time:       convert.TimeFromProto(m.GetTime()),
		ToolCalls:  convert.All(m.GetToolCalls(), callFromProto),
		ToolCallID: m.GetToolCallId(),
		Partial:    m.GetPartial(),

		Attachments: AttachmentsFromProto(m.GetParts()),
		Untrusted:   m.GetUntrusted(),
	}
}

// MessagesToProto converts each message by MessageToProto.
func MessagesToProto(ms []conversation.Message) []*troupev1.Message {
	return convert.All(ms, MessageToProto)
}

// MessagesFromProto converts each message by MessageFromProto.
func MessagesFromProto(ms []*troupev1.Message) []conversation.Message {
	return convert.All(ms, MessageFromProto)
}

func joinText(parts []*troupev1.Part) string {
	if len(parts) == 1 {
		return parts[0].GetText()
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.GetText())
	}
	return b.String()
}
