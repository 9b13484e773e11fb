package gemini

import (
	"google.golang.org/genai"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// userParts returns the parts of a user message, files first.
func userParts(m conversation.Message) []*genai.Part {
	said, files := llm.SplitAttachments(m, acceptsAttachment)
	var parts []*genai.Part
	for _, f := range files {
		parts = append(parts, &genai.Part{InlineData: &genai.Blob{MIMEType: llm.MediaType(f), Data: f.Data}})
	}
	return append(parts, textParts(said)...)
}

func acceptsAttachment(mediaType string) bool { return llm.IsImage(mediaType) || mediaType == llm.PDF }
