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
		parts = append(parts, filePart(f))
	}
	return append(parts, textParts(said)...)
}

func filePart(f conversation.Attachment) *genai.Part {
	return &genai.Part{InlineData: &genai.Blob{MIMEType: llm.MediaType(f), Data: f.Data}}
}

// toolResultParts returns the part of a tool result. The provider matches results with calls by name and order, and also
// by id if it has given one. Models before the third generation reject files inside of a result. For them, after returns
// the parts of the content that follows the results of the round.
func (m *model) toolResultParts(call conversation.ToolCall, msg conversation.Message) (result *genai.Part, after []*genai.Part) {
	said, files := llm.SplitAttachments(msg, acceptsAttachment)
	response := &genai.FunctionResponse{ID: decodeExtra(call.Extra).ID, Name: call.Name, Response: map[string]any{"output": said}}
	for _, f := range files {
		if m.isThirdGeneration() {
			response.Parts = append(response.Parts, &genai.FunctionResponsePart{
				InlineData: &genai.FunctionResponseBlob{MIMEType: llm.MediaType(f), Data: f.Data},
			})
			continue
		}
		after = append(after, &genai.Part{Text: "[file " + f.Name + " of a result of " + call.Name + "]"}, filePart(f))
	}
	return &genai.Part{FunctionResponse: response}, after
}

func acceptsAttachment(mediaType string) bool { return llm.IsImage(mediaType) || mediaType == llm.PDF }
