package result

import (
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// MaxStateBytes is the maximum size of the JSON of an answer that is stored in the session's state.
const MaxStateBytes = memory.MaxStateValueBytes

// IsStateKey reports whether an answer can be stored under a key of the session's state.
func IsStateKey(key string) bool {
	return memory.CheckDelta("agent.New", map[string]json.RawMessage{key: nil}) == nil
}

// CutForState cuts an answer so that its JSON has at most MaxStateBytes.
func CutForState(text string) (string, error) {
	for {
		asJSON, err := json.Marshal(text)
		if err != nil || len(asJSON) <= MaxStateBytes {
			return text, err
		}
		text = conversation.Truncate(text, min(MaxStateBytes, len(text)*9/10))
	}
}

// ApplyState applies the changes of state in a function's message (AD-18). It emits no event, because the message
// already contains the changes.
func ApplyState(t *hook.Turn, agent string, state map[string]json.RawMessage) error {
	m := t.Memory()
	emitted := m.Fork(agent)
	for key, value := range state {
		err := emitted.Delete(key)
		if err == nil && len(value) > 0 {
			err = emitted.Set(key, value)
		}
		if err != nil {
			return err
		}
	}
	m.Join(emitted)
	return nil
}
