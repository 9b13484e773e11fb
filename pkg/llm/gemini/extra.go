package gemini

import (
	"encoding/json"
	"strings"
)

// extra is the data that must be sent back to the provider with a call (CO-11).
type extra struct {
	ID        string `json:"id,omitempty"`        // id from the provider (empty if it sent none); may differ from the id of the call
	Signature []byte `json:"signature,omitempty"` // signature of the thoughts that led to the call
}

// placeholderSignature is the signature that the provider defines for calls of other models. Models of the third
// generation and later reject a round whose first call has no signature.
const placeholderSignature = "skip_thought_signature_validator"

// extraPrefix begins each conversation.ToolCall.Extra of this provider. This adapter ignores values without it,
// which come from other providers. Other adapters ignore values with it, because they are not JSON.
const extraPrefix = "gemini:"

// maxExtra is the maximum length of conversation.ToolCall.Extra in bytes. A longer signature is dropped.
const maxExtra = 64 << 10

// encodeExtra encodes e for conversation.ToolCall.Extra. It returns "" if e is empty.
func encodeExtra(e extra) string {
	packed, err := json.Marshal(e)
	if e.ID == "" && len(e.Signature) == 0 || err != nil || len(extraPrefix)+len(packed) > maxExtra {
		return ""
	}
	return extraPrefix + string(packed)
}

// decodeExtra decodes the result of encodeExtra.
func decodeExtra(kept string) extra {
	packed, own := strings.CutPrefix(kept, extraPrefix)
	var e extra
	if !own || json.Unmarshal([]byte(packed), &e) != nil {
		return extra{}
	}
	return e
}
