package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// extra is the data that must be sent back to the server with a call (CO-11). The first call of a message holds the
// reasoning that led to the message.
type extra struct {
	Server  string          `json:"server"`                  // provider that sent it; another server may reject the fields
	Form    reasoningForm   `json:"form,omitempty"`          // how the server sent the reasoning (empty means that there was none)
	Text    string          `json:"text,omitempty"`          // the reasoning
	Details details         `json:"details,omitempty"`       // the reasoning as reasoning_details, if the server sent them
	Content json.RawMessage `json:"extra_content,omitempty"` // the call's own extra_content
}

// reasoningForm says in which field of a message a server sends its reasoning, and expects it back.
type reasoningForm string

const (
	formReasoningContent reasoningForm = "reasoning_content" // DeepSeek, Moonshot and many local servers
	formReasoning        reasoningForm = "reasoning"         // OpenRouter, Ollama and vLLM
	formParts            reasoningForm = "thinking"          // parts of the content, as Mistral sends them
	formTag              reasoningForm = "think"             // <think> at the beginning of the text
)

// extraPrefix begins each conversation.ToolCall.Extra of this package. Other adapters ignore values with it.
const extraPrefix = "openai:"

// maxExtra is the maximum length of conversation.ToolCall.Extra in bytes. Longer reasoning is cut.
const maxExtra = 64 << 10

// encode encodes e for conversation.ToolCall.Extra. It returns "" if e is empty. If e is too long, it drops the
// details and cuts the text, because a server may check that there is reasoning, but not what it says.
func (e extra) encode() string {
	if e.Form == "" && len(e.Details) == 0 && len(e.Content) == 0 {
		return ""
	}
	packed := e.pack()
	if len(packed) > maxExtra {
		e.Details = nil
		packed = e.pack()
	}
	for len(packed) > maxExtra && e.Text != "" {
		e.Text = conversation.Truncate(e.Text, (len(e.Text)-1)*maxExtra/len(packed))
		packed = e.pack()
	}
	if len(packed) > maxExtra {
		return ""
	}
	return packed
}

func (e extra) pack() string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(e) != nil {
		return ""
	}
	return extraPrefix + strings.TrimSuffix(b.String(), "\n")
}

// decodeExtra decodes the result of encode. It returns an empty extra for data of another server or provider.
func decodeExtra(kept, server string) extra {
	packed, own := strings.CutPrefix(kept, extraPrefix)
	var e extra
	if !own || json.Unmarshal([]byte(packed), &e) != nil || e.Server != server {
		return extra{}
	}
	return e
}
