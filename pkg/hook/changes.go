package hook

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/troupe-dev/troupe/internal/statechange"
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

// Absorb applies the changes of a fork to the memory of the turn. The next event of the turn contains them. It returns
// the keys whose values, changed since the fork was made, are overwritten (AD-36).
func (c *Control) Absorb(fork *Memory) (overwritten []string) {
	return c.turn.memory.joinUnemitted(fork)
}

// TakeUnjournaled returns the changes of state that the journal does not have yet: the keys that were set, the keys that
// were removed, and the earlier values of the keys that were updated. It returns each change once.
func (c *Control) TakeUnjournaled() (set map[string]json.RawMessage, removed []string, bases map[string]json.RawMessage) {
	m := c.turn.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.changes.TakeUnjournaled()
	return r.SetValues, r.Removed, r.Bases
}

// ChangesOf returns the changes of a fork of the turn's memory, as TakeUnjournaled does.
func (c *Control) ChangesOf(fork *Memory) (set map[string]json.RawMessage, removed []string, bases map[string]json.RawMessage) {
	fork.mu.Lock()
	defer fork.mu.Unlock()
	r := fork.changes.Recorded()
	return r.SetValues, r.Removed, r.Bases
}

// Reapply repeats changes of state that the journal recorded in an earlier attempt. They are not journaled a second
// time. containsUnjournaled says that the changes contain those of handlers, which have made them again in this
// attempt.
func (c *Control) Reapply(set map[string]json.RawMessage, removed []string, bases map[string]json.RawMessage, containsUnjournaled bool) {
	if len(set)+len(removed) == 0 {
		return
	}
	m := c.turn.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	r := statechange.Recorded{SetValues: set, Removed: removed, Bases: bases}
	m.changes.Restore(r, containsUnjournaled)
	statechange.Collect(&m.unemitted, r.Values())
}

// ChangesToStore returns all changes of state that must be stored with the step.
func (c *Control) ChangesToStore() map[string]json.RawMessage {
	m := c.turn.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	values := m.changes.Values()
	maps.DeleteFunc(values, func(key string, _ json.RawMessage) bool { return strings.HasPrefix(key, tempPrefix) })
	if len(values) == 0 {
		return nil
	}
	return values
}

// ExpectedRevisions returns the revisions that changed shared keys must still have at the commit, and a function that
// repeats the changes on other values. Both are nil if no such key was changed. See event.TurnResult.
func (c *Control) ExpectedRevisions() (
	expected map[string]int64,
	rebase func(values map[string]json.RawMessage, revisions map[string]int64) (state map[string]json.RawMessage, overwritten []string, _ error),
) {
	m := c.turn.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	made := m.changes.Clone()
	if expected = made.Expected(); expected == nil {
		return nil, nil
	}
	seen := maps.Clone(expected)
	return expected, func(values map[string]json.RawMessage, revisions map[string]int64) (map[string]json.RawMessage, []string, error) {
		state, overwritten, err := made.Rebase(seen, values, revisions)
		for key := range seen {
			seen[key] = revisions[key]
		}
		return state, overwritten, err
	}
}
