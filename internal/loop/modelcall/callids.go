package modelcall

import (
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// CallIDs makes sure that every tool call of a run has an id of its own.
type CallIDs struct {
	used map[string]bool
}

// Assign returns the calls, with new ids for those whose id is missing or was used before in this step. Each tool
// message must find its call (CO-33), also when messages were replaced.
func (ids *CallIDs) Assign(calls []conversation.ToolCall, messages []conversation.Message) []conversation.ToolCall {
	if len(calls) == 0 {
		return nil
	}
	calls = slices.Clone(calls)
	for i := range calls {
		for n := 1; ids.isTaken(calls[i].ID, calls[:i], messages); n++ {
			calls[i].ID = fmt.Sprintf("call_%d", n)
		}
	}
	return calls
}

// MarkUsed notes that the ids of calls are taken.
func (ids *CallIDs) MarkUsed(calls []conversation.ToolCall) {
	if ids.used == nil {
		ids.used = map[string]bool{}
	}
	for _, c := range calls {
		ids.used[c.ID] = true
	}
}

// isTaken reports whether a call cannot have this id.
func (ids *CallIDs) isTaken(id string, before []conversation.ToolCall, messages []conversation.Message) bool {
	same := func(c conversation.ToolCall) bool { return c.ID == id }
	return id == "" || ids.used[id] || slices.ContainsFunc(before, same) ||
		slices.ContainsFunc(messages, func(m conversation.Message) bool { return slices.ContainsFunc(m.ToolCalls, same) })
}
