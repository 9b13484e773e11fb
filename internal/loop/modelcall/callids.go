package modelcall

import (
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// CallIDs gives every tool call of a run a unique id.
type CallIDs struct {
	used map[string]bool
}

// Assign returns the calls with new ids where the id is missing or was used before in this step. Unique ids let
// each tool message be matched with its call (CO-33), even if handlers replaced messages.
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

// MarkUsed records that the ids of the calls are in use.
func (ids *CallIDs) MarkUsed(calls []conversation.ToolCall) {
	if ids.used == nil {
		ids.used = map[string]bool{}
	}
	for _, c := range calls {
		ids.used[c.ID] = true
	}
}

// isTaken reports whether another call already uses this id.
func (ids *CallIDs) isTaken(id string, before []conversation.ToolCall, messages []conversation.Message) bool {
	same := func(c conversation.ToolCall) bool { return c.ID == id }
	return id == "" || ids.used[id] || slices.ContainsFunc(before, same) ||
		slices.ContainsFunc(messages, func(m conversation.Message) bool { return slices.ContainsFunc(m.ToolCalls, same) })
}
