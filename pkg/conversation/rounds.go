package conversation

import (
	"fmt"
	"slices"
)

// Rounds are the messages that one step of an agent added to what its model saw, besides the messages of the session: its
// task, its tool calls with their results, and what handlers added (LP-45). They follow the message After of the session.
type Rounds struct {
	Turn     int       // number of the turn in the session, from 1
	Step     int       // number of the step in the turn, from 1
	After    int64     // sequence of the last message of the session that the step had read (0 means that it had read none)
	Messages []Message // in whole rounds, oldest first
}

// Size returns the bytes of the messages, as the function Size counts them.
func (r Rounds) Size() int {
	n := 0
	for _, m := range r.Messages {
		n += Size(m)
	}
	return n
}

// WithRounds returns messages of a session with rounds where they happened. The rounds are in the order of their After, and
// are left out if that message is not there, or if they are not whole. Calls get ids that differ.
func WithRounds(messages []Message, rounds []Rounds) []Message {
	if len(rounds) == 0 {
		return slices.Clip(messages)
	}
	var all []Message
	ids := callIDs{}
	for _, m := range messages {
		ids.add(m)
		all = append(all, m)
		for len(rounds) > 0 && rounds[0].After <= m.Sequence {
			if rounds[0].After == m.Sequence && CheckRounds(rounds[0].Messages) == nil {
				all = append(all, ids.unique(rounds[0].Messages)...)
			}
			rounds = rounds[1:]
		}
	}
	return all
}

// callIDs are the ids of the tool calls of a  Models number their calls anew in each step, and steps in
// branches do not see each other, but providers require that ids differ.
type callIDs map[string]bool

// add notes the ids of a message's calls.
func (ids callIDs) add(m Message) {
	for _, c := range m.ToolCalls {
		ids[c.ID] = true
	}
}

// unique returns rounds with new ids for the calls whose id is taken.
func (ids callIDs) unique(rounds []Message) []Message {
	isTaken := func(m Message) bool {
		return slices.ContainsFunc(m.ToolCalls, func(c ToolCall) bool { return ids[c.ID] })
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
		if id, ok := renamed[m.ToolCallID]; ok && m.Role == RoleTool {
			m.ToolCallID = id
		}
	}
	return rounds
}
