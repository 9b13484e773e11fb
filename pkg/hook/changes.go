package hook

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pkg/event"
)

// EmitChanges emits the changes of state and artifacts that no event has carried yet, with a text that belongs to
// them. Without changes and text it emits nothing (AD-6, AD-7).
func (c *Control) EmitChanges(text string) error {
	state, artifacts := c.turn.memory.takeDelta()
	if text == "" && len(state) == 0 && len(artifacts) == 0 {
		return nil
	}
	return c.Events.Emit(event.Message{Text: text, State: state, Artifacts: artifacts})
}

// Absorb makes the changes of a fork of the turn's memory in the turn itself.
func (c *Control) Absorb(fork *Memory) { c.turn.memory.absorb(fork) }

// TakeUnjournaled returns the changes of state that no journal has yet: the keys that were set, and those that were
// removed. Each change is returned once.
func (c *Control) TakeUnjournaled() (set map[string]json.RawMessage, removed []string) {
	return splitChanges(c.turn.memory.takeUnjournaled())
}

// ChangesOf returns what was set and removed in a fork of the turn's memory.
func (c *Control) ChangesOf(fork *Memory) (set map[string]json.RawMessage, removed []string) {
	return splitChanges(fork.snapshot())
}

// Reapply makes changes of state again that the journal has.
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

// ChangesToStore returns all changes of state that the step stores.
func (c *Control) ChangesToStore() map[string]json.RawMessage { return c.turn.memory.changesToStore() }

// splitChanges separates the keys that were set from those that were removed, which have an empty value.
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
