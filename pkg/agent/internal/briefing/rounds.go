package briefing

import (
	"slices"

	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Conversation returns the messages of the session that the step may see, with the agent's own tool rounds where they
// happened (LP-45). It leaves out the oldest rounds until all messages have about the given tokens, so that the context of
// the model has room for the step.
func Conversation(step execution.Step, tokens int64) []conversation.Message {
	return toolrounds.Merge(step.History, latestRounds(step, tokens))
}

// latestRounds returns the latest rounds of a step that have about the given tokens together with its history.
func latestRounds(step execution.Step, tokens int64) []conversation.Rounds {
	for _, m := range step.History {
		tokens -= conversation.EstimateTokens(m)
	}
	for i, r := range slices.Backward(step.Rounds) {
		for _, m := range r.Messages {
			tokens -= conversation.EstimateTokens(m)
		}
		if tokens < 0 {
			return step.Rounds[i+1:]
		}
	}
	return step.Rounds
}

// Added returns what the agent added to the conversation that it was given (see Conversation), without its answer. It
// returns nothing when a handler has removed the last message of the session, because the rest would lack its beginning.
func Added(step execution.Step, tokens int64, messages []conversation.Message) []conversation.Message {
	if n := len(step.History); n > 0 {
		at := lastIndex(messages, step.History[n-1])
		if at < 0 {
			return nil
		}
		messages = messages[at+1:]
		given := Conversation(step, tokens)
		for _, m := range given[lastIndex(given, step.History[n-1])+1:] { // rounds that it remembers after that message
			if len(messages) > 0 && isSame(messages[0], m) {
				messages = messages[1:]
			}
		}
	}
	n := len(messages)
	for n > 0 && messages[n-1].Role == conversation.RoleAssistant && len(messages[n-1].ToolCalls) == 0 {
		n--
	}
	messages = messages[:n]
	if conversation.CheckRounds(messages) != nil { // a handler ended the turn inside a round
		return nil
	}
	return slices.Clone(messages)
}

// lastIndex returns the index of the last message that is the same (-1 if there is none).
func lastIndex(messages []conversation.Message, m conversation.Message) int {
	for i, other := range slices.Backward(messages) {
		if isSame(other, m) {
			return i
		}
	}
	return -1
}

// isSame reports whether two messages are the same. A handler may have changed what else they hold.
func isSame(a, b conversation.Message) bool {
	return a.Role == b.Role && a.Sequence == b.Sequence && a.Author == b.Author && a.Text == b.Text && a.ToolCallID == b.ToolCallID &&
		slices.Equal(a.ToolCalls, b.ToolCalls)
}
