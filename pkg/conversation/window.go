package conversation

// bytesPerToken is how a token is estimated, for lack of the model's own count (LP-25).
const bytesPerToken = 4

// Tokens is about how many tokens a message takes: a quarter of its bytes, rounded up.
func Tokens(m Message) int64 { return (int64(Size(m)) + bytesPerToken - 1) / bytesPerToken }

// Size is how many bytes of text a message holds, tool calls included.
func Size(m Message) int {
	n := len(m.Text)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}

// Window is the end of a conversation, oldest first, within the given bounds: at most so
// many messages, and about so many tokens; 0 does not bound. It is never empty when there
// are messages, and it does not begin inside a tool round: results whose call is cut off
// are left out with it.
func Window(messages []Message, limit int, tokens int64) []Message {
	from, spent := len(messages), int64(0)
	for i := len(messages) - 1; i >= 0; i-- {
		spent += Tokens(messages[i])
		if from < len(messages) && (limit > 0 && len(messages)-i > limit || tokens > 0 && spent > tokens) {
			break
		}
		from = i
	}
	return messages[Round(messages, from):]
}

// Round is the first index from which a cut does not part a tool call from its results: the
// given one, or the one behind the results that stand there. A conversation that ends in
// results keeps their whole round: then it is the index of their call.
func Round(messages []Message, from int) int {
	at := from
	for at < len(messages) && messages[at].Role == RoleTool {
		at++
	}
	if at < len(messages) || at == from {
		return at
	}
	for at = from; at > 0 && messages[at].Role == RoleTool; {
		at--
	}
	return at
}
