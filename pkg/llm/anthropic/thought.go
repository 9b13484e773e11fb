package anthropic

import (
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
)

// thought is a block of reasoning. It is stored with the call that it led to, and sent back unchanged, because the
// provider checks its signature (CO-11).
type thought struct {
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"` // encrypted by the provider, instead of both
}

// mark is the prefix of conversation.ToolCall.Extra of this provider. Values from other providers are ignored. Other
// providers ignore this one too, because it is no JSON.
const mark = "anthropic:"

// maxExtra is the limit of conversation.ToolCall.Extra, in bytes. Longer thoughts are dropped.
const maxExtra = 64 << 10

// pack encodes thoughts for conversation.ToolCall.Extra. It returns "" if there are none.
func pack(thoughts []thought) string {
	packed, err := json.Marshal(thoughts)
	if len(thoughts) == 0 || err != nil || len(mark)+len(packed) > maxExtra {
		return ""
	}
	return mark + string(packed)
}

// thoughts decodes what pack encoded.
func thoughts(extra string) []sdk.ContentBlockParamUnion {
	packed, own := strings.CutPrefix(extra, mark)
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
