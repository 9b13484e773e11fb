package conversation

import "slices"

// bytesPerToken is how a token is estimated, for lack of the model's own count (LP-25).
const bytesPerToken = 4

// Tokens is about how many tokens a message takes: a quarter of its bytes, rounded up.
func Tokens(m Message) int64 { return (int64(Size(m)) + bytesPerToken - 1) / bytesPerToken }

// Size is how many bytes of text a message holds, tool calls included. Of an attachment only
// its name counts: what it holds is no part of the message.
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

// Window is the end of a conversation, oldest first, within the given bounds: at most so
// many messages, and about so many tokens; 0 does not bound. It is never empty when there
// are messages, and it does not begin inside a tool round: results whose call is cut off
// are left out with it. A conversation that ends in results keeps their round, which may
// be more than the bounds.
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
	return messages[opening(messages, from):]
}

// opening returns the given index, or the index of the tool call to which the results there belong.
func opening(messages []Message, at int) int {
	for at > 0 && at < len(messages) && messages[at].Role == RoleTool {
		at--
	}
	return at
}
