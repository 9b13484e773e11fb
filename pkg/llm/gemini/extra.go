package gemini

import (
	"encoding/json"
	"strings"
)

// extra is the data that the provider needs back with a call (CO-11).
type extra struct {
	ID        string `json:"id,omitempty"`        // from the provider (empty if it sent none); may differ from the id of the call
	Signature []byte `json:"signature,omitempty"` // of the thoughts that led to the call
}

// unsigned is the signature for a call of another model, as the provider defines it. Models since the third
// generation reject a round whose first call has no signature.
const unsigned = "skip_thought_signature_validator"

// mark is the prefix of conversation.ToolCall.Extra of this provider. Values from other providers are ignored. Other
// providers ignore this one too, because it is no JSON.
const mark = "gemini:"

// maxExtra is the limit of conversation.ToolCall.Extra, in bytes. A longer signature is dropped.
const maxExtra = 64 << 10

// pack encodes e for conversation.ToolCall.Extra. It returns "" if e is empty.
func pack(e extra) string {
	packed, err := json.Marshal(e)
	if e.ID == "" && len(e.Signature) == 0 || err != nil || len(mark)+len(packed) > maxExtra {
		return ""
	}
	return mark + string(packed)
}

// unpack decodes what pack encoded.
func unpack(kept string) extra {
	packed, own := strings.CutPrefix(kept, mark)
	var e extra
	if !own || json.Unmarshal([]byte(packed), &e) != nil {
		return extra{}
	}
	return e
}
