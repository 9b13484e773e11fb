// Package toolrounds says which tool rounds a step sees, puts them into its conversation, and limits those that it stores.
package toolrounds

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// Visible returns the rounds that a step may see. In its own turn, and in turns that this one continues or
// resumes, it sees only rounds of steps whose results it was given. If such a step ran in several turns, only its
// latest rounds are visible. So another attempt sees the same.
func Visible(step execution.Step, rounds []conversation.Rounds) []conversation.Rounds {
	started := startOfTurn(step.History)
	isOfTurn := func(r conversation.Rounds) bool { return r.Turn == step.Turn || r.After >= started }
	latest := map[int]int{} // turn by step
	for _, r := range rounds {
		if isOfTurn(r) && r.Turn <= step.Turn {
			latest[r.Step] = max(latest[r.Step], r.Turn)
		}
	}
	return slices.DeleteFunc(slices.Clone(rounds), func(r conversation.Rounds) bool {
		isPrior := func(p execution.Result) bool { return p.Step == r.Step }
		return r.Turn > step.Turn || isOfTurn(r) && (r.Turn < latest[r.Step] || !slices.ContainsFunc(step.Prior, isPrior))
	})
}

// startOfTurn returns the sequence of the user's last message (the largest number if there is none). A turn that
// continues or resumes another has no message of its own.
func startOfTurn(history []conversation.Message) int64 {
	for _, m := range slices.Backward(history) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			return m.Sequence
		}
	}
	return math.MaxInt64
}

// Merge returns the messages of a session with each of the rounds after the message that it follows. The rounds
// must be ordered by After. A round is left out if that message is missing or if the round is incomplete. Calls
// whose id is taken get a new id.
func Merge(messages []conversation.Message, rounds []conversation.Rounds) []conversation.Message {
	if len(rounds) == 0 {
		return slices.Clip(messages)
	}
	var all []conversation.Message
	ids := callIDs{}
	for _, m := range messages {
		ids.add(m)
		all = append(all, m)
		for len(rounds) > 0 && rounds[0].After <= m.Sequence {
			if rounds[0].After == m.Sequence && conversation.CheckRounds(rounds[0].Messages) == nil {
				all = append(all, ids.makeUnique(rounds[0].Messages)...)
			}
			rounds = rounds[1:]
		}
	}
	return all
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

// makeUnique returns the rounds with new ids for the calls whose id is taken, and notes all ids.
func (ids callIDs) makeUnique(rounds []conversation.Message) []conversation.Message {
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

// Latest returns the latest rounds of a step, as many as its commit may contain. It returns none if the last round
// alone is too large.
func Latest(messages []conversation.Message) []memory.RoundMessage {
	messages = conversation.Window(messages, memory.MaxWindow, memory.MaxWindowBytes/4)
	if size := (conversation.Rounds{Messages: messages}).Size(); size > memory.MaxWindowBytes || len(messages) > memory.MaxWindow {
		return nil
	}
	var rounds []memory.RoundMessage
	for _, m := range messages {
		rounds = append(rounds, memory.RoundMessage{Message: m.WithoutData()})
	}
	return rounds
}

// All returns the whole history of an agent, oldest first. load returns a page of it, as LoadRounds of a memory.Store does.
func All(load func(before *conversation.Rounds) ([]conversation.Rounds, error)) ([]conversation.Rounds, error) {
	var all []conversation.Rounds
	for before := (*conversation.Rounds)(nil); ; before = &all[0] {
		page, err := load(before)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(page, all...)
	}
}

// missingResultText is the tool result that the model reads for a call without a result.
const missingResultText = "Interrupted: the turn ended before the tool had a result."

// Complete returns messages in which every tool call has exactly its result, because models require it. It adds
// missing results and removes results without a call. A turn may end inside a round.
func Complete(messages []conversation.Message) []conversation.Message {
	var all []conversation.Message
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == conversation.RoleTool {
			continue
		}
		all = append(all, m)
		for _, call := range m.ToolCalls {
			if i+1 < len(messages) && messages[i+1].Role == conversation.RoleTool && messages[i+1].ToolCallID == call.ID {
				i++
				all = append(all, messages[i])
				continue
			}
			all = append(all, conversation.Message{Role: conversation.RoleTool, Text: missingResultText, ToolCallID: call.ID})
		}
	}
	return all
}
