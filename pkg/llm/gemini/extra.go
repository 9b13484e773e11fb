package gemini

import (
	"encoding/json"
	"strings"
)

// extra is what the provider needs back with a call (CO-11).
type extra struct {
	ID        string `json:"id,omitempty"`        // from the provider (empty if it sent none); may differ from the id of the call
	Signature []byte `json:"signature,omitempty"` // of the thoughts that led to the call
}

// unsigned is the signature of a call that another model wrote, in the provider's words.
// Models of the third generation and later refuse a round whose first call has none.
const unsigned = "skip_thought_signature_validator"

// mark is the prefix of conversation.ToolCall.Extra of this provider. Values from other providers are ignored. Other
// providers ignore this one too, because it is no JSON.
const mark = "gemini:"

// maxExtra is the limit of conversation.ToolCall.Extra. A signature beyond it is let go.
const maxExtra = 64 << 10

// pack is e as it is kept with a call; empty when there is nothing to keep.
func pack(e extra) string {
	packed, err := json.Marshal(e)
	if e.ID == "" && len(e.Signature) == 0 || err != nil || len(mark)+len(packed) > maxExtra {
		return ""
	}
	return mark + string(packed)
}

// unpack is what pack was given.
func unpack(kept string) extra {
	packed, own := strings.CutPrefix(kept, mark)
	var e extra
	if !own || json.Unmarshal([]byte(packed), &e) != nil {
		return extra{}
	}
	return e
}
