package hook

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pkg/event"
)

// EmitChanges emits the changes of state and artifacts that no event has carried yet, with a text that belongs to
// them. It emits nothing if there are neither changes nor text (AD-6, AD-7).
func (c *Control) EmitChanges(text string) error {
	state, artifacts := c.turn.memory.takeDelta()
	if text == "" && len(state) == 0 && len(artifacts) == 0 {
		return nil
	}
	return c.Events.Emit(event.Message{Text: text, State: state, Artifacts: artifacts})
}

// Absorb applies the changes of a fork of the turn's memory to the turn itself.
func (c *Control) Absorb(fork *Memory) { c.turn.memory.absorb(fork) }

// TakeUnjournaled returns the changes of state that are in no journal yet: the keys that were set, and those that
// were removed. It returns each change once.
func (c *Control) TakeUnjournaled() (set map[string]json.RawMessage, removed []string) {
	return splitChanges(c.turn.memory.takeUnjournaled())
}

// ChangesOf returns the keys that were set and removed in a fork of the turn's memory.
func (c *Control) ChangesOf(fork *Memory) (set map[string]json.RawMessage, removed []string) {
	return splitChanges(fork.snapshot())
}

// Reapply applies changes of state from the journal again.
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
