package conversation

import "slices"

// bytesPerToken is a rough estimate, because the real token count of the model is unknown (LP-25).
const bytesPerToken = 4

// EstimateTokens estimates the tokens of a message as a quarter of its bytes, rounded up.
func EstimateTokens(m Message) int64 { return (int64(Size(m)) + bytesPerToken - 1) / bytesPerToken }

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
