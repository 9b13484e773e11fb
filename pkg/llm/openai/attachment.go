package openai

import (
	"encoding/base64"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// toUserMessage converts a message of the user. Its content is a text, or a list of parts if there are files.
func (m *model) toUserMessage(said conversation.Message) message {
	text, files := llm.SplitAttachments(said, m.acceptsAttachment)
	if len(files) == 0 {
		return message{Role: conversation.RoleUser, Content: text}
	}
	var parts []part
	for _, f := range files {
		parts = append(parts, filePart(f))
	}
	if text != "" {
		parts = append(parts, part{Type: "text", Text: text})
	}
	return message{Role: conversation.RoleUser, Content: parts}
}

func filePart(f conversation.Attachment) part {
	url := "data:" + llm.MediaType(f) + ";base64," + base64.StdEncoding.EncodeToString(f.Data)
	if llm.MediaType(f) == llm.PDF {
		return part{Type: "file", File: &file{Name: f.Name, Data: url}}
	}
	return part{Type: "image_url", ImageURL: &imageURL{URL: url}}
}

// toToolMessage converts a tool result. The API accepts only text in it, so its files are parts of the user message that
// follows the results of the round.
func (m *model) toToolMessage(said conversation.Message) (message, []part) {
	text, files := llm.SplitAttachments(said, m.acceptsAttachment)
	var parts []part
	for _, f := range files {
		label := "[file " + f.Name + " of the result of the call " + said.ToolCallID + "]"
		parts = append(parts, part{Type: "text", Text: label}, filePart(f))
	}
	return message{Role: conversation.RoleTool, Content: text, ToolCallID: said.ToolCallID}, parts
}

// acceptsAttachment reports whether the provider accepts files of a media type. All servers accept images, but few
// accept documents.
func (m *model) acceptsAttachment(mediaType string) bool {
	provider := m.source.Provider
	return llm.IsImage(mediaType) || mediaType == llm.PDF && (provider == Prefix || provider == "openrouter")
}
