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
		url := "data:" + llm.MediaType(f) + ";base64," + base64.StdEncoding.EncodeToString(f.Data)
		if llm.MediaType(f) == llm.PDF {
			parts = append(parts, part{Type: "file", File: &file{Name: f.Name, Data: url}})
			continue
		}
		parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{URL: url}})
	}
	if text != "" {
		parts = append(parts, part{Type: "text", Text: text})
	}
	return message{Role: conversation.RoleUser, Content: parts}
}

// acceptsAttachment reports whether the provider accepts files of a media type. All servers accept images, but few
// accept documents.
func (m *model) acceptsAttachment(mediaType string) bool {
	provider := m.source.Provider
	return llm.IsImage(mediaType) || mediaType == llm.PDF && (provider == Prefix || provider == "openrouter")
}
