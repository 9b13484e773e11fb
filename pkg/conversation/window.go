package conversation

import "slices"

// bytesPerToken is a rough size of a token, because the token count of the model is unknown (LP-25).
const bytesPerToken = 4

// Tokens estimates the tokens of a message: a quarter of its bytes, rounded up.
func Tokens(m Message) int64 { return (int64(Size(m)) + bytesPerToken - 1) / bytesPerToken }

// Size returns the bytes of a message's text and tool calls. Only the name and media type of an attachment count,
// because its content is stored separately.
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

// Window returns the latest messages, oldest first, with at most limit messages and about the given tokens (0
// means no bound). It returns at least one message if there are any. It never begins inside a tool round: results
// without their call are left out. If the conversation ends in tool results, the whole round stays, even beyond
// the bounds.
func Window(messages []Message, limit int, tokens int64) []Message {
	from, spent := len(messages), int64(0)
	for i, m := range slices.Backward(messages) {
		spent += Tokens(m)
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

// roundStart returns at, or the index of the assistant message whose tool results are at this index.
func roundStart(messages []Message, at int) int {
	for at > 0 && at < len(messages) && messages[at].Role == RoleTool {
		at--
	}
	return at
}
