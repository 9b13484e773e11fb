package briefing

import (
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Conversation returns the messages of the session that the step may see, with the agent's own tool rounds where they
// happened (LP-45). It leaves out rounds that happened before the first message. Then it leaves out the oldest rounds
// until all messages have about the given tokens, so that the context of the model has room for the step.
func Conversation(step execution.Step, tokens int64) []conversation.Message {
	if len(step.Rounds) == 0 || len(step.History) == 0 {
		return slices.Clip(step.History)
	}
	var all []conversation.Message
	ids, rounds := callIDs{}, latestRounds(step, tokens)
	for _, m := range step.History {
		ids.add(m)
		all = append(all, m)
		for len(rounds) > 0 && rounds[0].After <= m.Sequence {
			if rounds[0].After == m.Sequence && conversation.CheckRounds(rounds[0].Messages) == nil {
				all = append(all, ids.unique(rounds[0].Messages)...)
			}
			rounds = rounds[1:]
		}
	}
	return all
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

// Added returns what the agent added to the conversation that it was given, without its answer. It returns nothing when
// a handler has removed the last message that was given, because the rest would lack its beginning.
func Added(step execution.Step, messages []conversation.Message) []conversation.Message {
	if n := len(step.History); n > 0 {
		last := step.History[n-1]
		at := -1
		for i, m := range slices.Backward(messages) {
			if m.Role == last.Role && m.Sequence == last.Sequence && m.Author == last.Author && m.Text == last.Text {
				at = i
				break
			}
		}
		if at < 0 {
			return nil
		}
		messages = messages[at+1:]
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

// callIDs are the ids of the tool calls of a conversation. Models number their calls anew in each step, and steps in
// branches do not see each other, but providers require that ids differ.
type callIDs map[string]bool

// add notes the ids of a message's calls.
func (ids callIDs) add(m conversation.Message) {
	for _, c := range m.ToolCalls {
		ids[c.ID] = true
	}
}

// unique returns rounds with new ids for the calls whose id is taken.
func (ids callIDs) unique(rounds []conversation.Message) []conversation.Message {
	isTaken := func(m conversation.Message) bool {
		return slices.ContainsFunc(m.ToolCalls, func(c conversation.ToolCall) bool { return ids[c.ID] })
	}
	if !slices.ContainsFunc(rounds, isTaken) {
		for _, m := range rounds {
			ids.add(m)
		}
		return rounds
	}
	rounds = slices.Clone(rounds)
	var renamed map[string]string
	for i := range rounds {
		m := &rounds[i]
		if len(m.ToolCalls) > 0 {
			renamed, m.ToolCalls = map[string]string{}, slices.Clone(m.ToolCalls)
			for k := range m.ToolCalls {
				id := m.ToolCalls[k].ID
				for n := 2; ids[m.ToolCalls[k].ID]; n++ {
					m.ToolCalls[k].ID = fmt.Sprintf("%s_%d", id, n)
				}
				renamed[id] = m.ToolCalls[k].ID
				ids[m.ToolCalls[k].ID] = true
			}
		}
		if id, ok := renamed[m.ToolCallID]; ok && m.Role == conversation.RoleTool {
			m.ToolCallID = id
		}
	}
	return rounds
}
