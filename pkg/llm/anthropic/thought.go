package anthropic

import (
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
)

// thought is a block of reasoning. It is stored with the call to which it led, and sent back unchanged, because
// the provider checks its signature (CO-11).
type thought struct {
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"` // encrypted thought, which the provider sends instead of text and signature
}

// extraPrefix begins each conversation.ToolCall.Extra of this provider. This adapter ignores values without it,
// which come from other providers. Other adapters ignore values with it, because they are not JSON.
const extraPrefix = "anthropic:"

// maxExtra is the maximum length of conversation.ToolCall.Extra in bytes. Longer thoughts are dropped.
const maxExtra = 64 << 10

// encodeThoughts encodes thoughts for conversation.ToolCall.Extra. It returns "" if there are none.
func encodeThoughts(thoughts []thought) string {
	packed, err := json.Marshal(thoughts)
	if len(thoughts) == 0 || err != nil || len(extraPrefix)+len(packed) > maxExtra {
		return ""
	}
	return extraPrefix + string(packed)
}

// decodeThoughts decodes the result of encodeThoughts.
func decodeThoughts(extra string) []sdk.ContentBlockParamUnion {
	packed, own := strings.CutPrefix(extra, extraPrefix)
	var all []thought
	if !own || json.Unmarshal([]byte(packed), &all) != nil {
		return nil
	}
	var blocks []sdk.ContentBlockParamUnion
	for _, t := range all {
		if t.Redacted != "" {
			blocks = append(blocks, sdk.NewRedactedThinkingBlock(t.Redacted))
		} else {
			blocks = append(blocks, sdk.NewThinkingBlock(t.Signature, t.Text))
		}
	}
	return blocks
}
