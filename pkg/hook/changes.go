package hook

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pkg/event"
)

// EmitChanges emits one message with the text and with the changes of state and artifacts that no event contains
// yet. It emits nothing if there are neither changes nor text (AD-6, AD-7).
func (c *Control) EmitChanges(text string) error {
	state, artifacts := c.turn.memory.takeUnemitted()
	if text == "" && len(state) == 0 && len(artifacts) == 0 {
		return nil
	}
	return c.Events.Emit(event.Message{Text: text, State: state, Artifacts: artifacts})
}

// Absorb applies the changes of a fork to the memory of the turn. The next event of the turn contains them.
func (c *Control) Absorb(fork *Memory) { c.turn.memory.joinUnemitted(fork) }

// TakeUnjournaled returns the changes of state that the journal does not have yet: the keys that were set, and the
// keys that were removed. It returns each change once.
func (c *Control) TakeUnjournaled() (set map[string]json.RawMessage, removed []string) {
	return splitChanges(c.turn.memory.takeUnjournaled())
}

// ChangesOf returns the keys that a fork of the turn's memory has set and removed.
func (c *Control) ChangesOf(fork *Memory) (set map[string]json.RawMessage, removed []string) {
	return splitChanges(fork.snapshot())
}

// Reapply repeats changes of state that the journal recorded in an earlier attempt. They are not journaled a
// second time.
func (c *Control) Reapply(set map[string]json.RawMessage, removed []string) {
	changes := maps.Clone(set)
	if len(removed) > 0 && changes == nil {
		changes = map[string]json.RawMessage{}
	}
	for _, key := range removed {
		changes[key] = nil
	}
	if len(changes) > 0 {
		c.turn.memory.apply(changes)
		c.turn.memory.takeUnjournaled()
	}
}

// ChangesToStore returns all changes of state that must be stored with the step.
func (c *Control) ChangesToStore() map[string]json.RawMessage { return c.turn.memory.changesToStore() }

// splitChanges separates the keys that were set from the removed keys, whose values are empty.
func splitChanges(changes map[string]json.RawMessage) (set map[string]json.RawMessage, removed []string) {
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		if len(changes[key]) > 0 {
			continue
		}
		removed = append(removed, key)
		delete(changes, key)
	}
	return changes, removed
}
