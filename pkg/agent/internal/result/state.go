package result

import (
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/conversation"
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
