package conversation

import (
	"slices"
	"strings"
)

// bytesPerToken is a rough estimate, because the real token count of the model is unknown (LP-25).
const bytesPerToken = 4

// fileTokens is about what providers charge for a large image. A page of a document costs as much.
const fileTokens = 1600

// bytesPerPDFPage is the assumed size of a page of a document.
const bytesPerPDFPage = 64 << 10

// EstimateTokens estimates the tokens of a message as a quarter of its bytes, rounded up. The files that a model reads with
// it count too: the files of a tool result, and others if their content is present.
func EstimateTokens(m Message) int64 {
	n := (int64(Size(m)) + bytesPerToken - 1) / bytesPerToken
	for _, a := range m.Attachments {
		if len(a.Data) > 0 || m.Role == RoleTool {
			n += a.estimateTokens()
		}
	}
	return n
}

// estimateTokens estimates the tokens of a file's content. Files of unknown types are not shown to models.
func (a Attachment) estimateTokens() int64 {
	mediaType := strings.ToLower(a.MediaType)
	switch kind, _, _ := strings.Cut(mediaType, "/"); kind {
	case "image":
		return fileTokens
	case "audio", "video":
		return fileTokens * (1 + a.Size/bytesPerPDFPage)
	case "text":
		return a.Size / bytesPerToken
	}
	switch {
	case strings.HasPrefix(mediaType, "application/pdf"):
		return fileTokens * (1 + a.Size/bytesPerPDFPage)
	case strings.Contains(mediaType, "json"), strings.Contains(mediaType, "xml"), strings.Contains(mediaType, "yaml"):
		return a.Size / bytesPerToken
	default:
		return 0
	}
}

// Size returns the bytes of a message's text and tool calls. Of an attachment only the name and the media type
// count, because its content is stored separately.
func Size(m Message) int {
	n := len(m.Text)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Arguments)
	}
	for _, a := range m.Attachments {
		n += len(a.Name) + len(a.MediaType)
	}
	return n
}

// Window returns the latest messages, oldest first: at most limit messages with about the given number of tokens
// (0 means unlimited). It returns at least one message if there are any. It never begins inside a tool round, so
// results without their call are left out. If the conversation ends with tool results, their whole round is
// returned, even if it exceeds the limits.
func Window(messages []Message, limit int, tokens int64) []Message {
	from, spent := len(messages), int64(0)
	for i, m := range slices.Backward(messages) {
		spent += EstimateTokens(m)
		if from < len(messages) && (limit > 0 && len(messages)-i > limit || tokens > 0 && spent > tokens) {
			break
		}
		from = i
	}
	for i, m := range messages[from:] {
		if m.Role != RoleTool {
			return messages[from+i:]
		}
	}
	return messages[roundStart(messages, from):]
}

// roundStart returns the index of the assistant message whose tool result is at index at. For any other message it
// returns at.
func roundStart(messages []Message, at int) int {
	for at > 0 && at < len(messages) && messages[at].Role == RoleTool {
		at--
	}
	return at
}
