package openai

import (
	"cmp"
	"encoding/json"
	"strings"
)

// chunk is one event of a stream, with the fields that the adapter uses.
type chunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Delta        output `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

// completion is a whole answer, which some servers send although the request asks for a stream.
type completion struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Message      output `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

// output is a message of the model, or a part of it.
type output struct {
	Content content         `json:"content"`
	Refusal json.RawMessage `json:"refusal"`
	// Servers send the reasoning under one of these names. Some send the same text under both.
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ToolCalls        []callPiece     `json:"tool_calls"`
	// FunctionCall is the older form of a tool call, which some servers still send.
	FunctionCall *functionPiece `json:"function_call"`
}

// reasoningText returns the reasoning as a JSON string (nil if there is none).
func (o output) reasoningText() json.RawMessage {
	if isString(o.ReasoningContent) {
		return o.ReasoningContent
	}
	return o.Reasoning
}

// callPiece is a part of a tool call.
type callPiece struct {
	Index    int             `json:"index"`
	ID       string          `json:"id"`
	Function functionPiece   `json:"function"`
	Extra    json.RawMessage `json:"extra_content"` // the server needs it back with the call (CO-11)
}

type functionPiece struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // part of a JSON text, as a string; some servers send the object itself
}

// content is the text of a message, which is a string or a list of parts. Mistral's reasoning models send their
// thoughts as parts of the list.
type content struct {
	text     json.RawMessage   // nil if content is a list
	parts    []json.RawMessage // texts of the list
	thoughts []json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler. It ignores parts that are neither text nor thoughts.
func (c *content) UnmarshalJSON(data []byte) error {
	if !strings.HasPrefix(string(data), "[") {
		c.text = append(json.RawMessage(nil), data...)
		return nil
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     json.RawMessage `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		switch p.Type {
		case "text":
			c.parts = append(c.parts, p.Text)
		case "thinking":
			var inner content
			if err := inner.UnmarshalJSON(p.Thinking); err != nil {
				return err
			}
			c.thoughts = append(c.thoughts, inner.texts()...)
		}
	}
	return nil
}

// texts returns the texts of the content as JSON strings.
func (c content) texts() []json.RawMessage {
	if isString(c.text) {
		return []json.RawMessage{c.text}
	}
	return c.parts
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// surrogateJoiner decodes JSON strings that together form one text. A character outside of the basic plane is written
// as two escapes, and some servers split the string between them. Each half alone would decode to a replacement
// character.
type surrogateJoiner struct {
	pendingEscape string // escape of the first half of a character, until the second half arrives
}

// decode returns the text of the next string ("" if raw is not a JSON string).
func (j *surrogateJoiner) decode(raw json.RawMessage) string {
	if !isString(raw) {
		return ""
	}
	body := j.pendingEscape + string(raw[1:len(raw)-1])
	j.pendingEscape = ""
	if cut := len(body) - len(`\ud83d`); endsWithHighSurrogate(body) {
		body, j.pendingEscape = body[:cut], body[cut:]
	}
	var text string
	if err := json.Unmarshal([]byte(`"`+body+`"`), &text); err != nil {
		return "" // impossible, because the decoder has accepted the string
	}
	return text
}

// endsWithHighSurrogate reports whether the body of a JSON string ends with the escape of a high surrogate, which
// is the first half of a character.
func endsWithHighSurrogate(body string) bool {
	cut := len(body) - len(`\ud83d`)
	if cut < 0 || !strings.HasPrefix(body[cut:], `\u`) {
		return false
	}
	escape := strings.ToLower(body[cut+2:])
	if escape[0] != 'd' || !strings.Contains("89ab", escape[1:2]) {
		return false
	}
	backslashes := len(body[:cut]) - len(strings.TrimRight(body[:cut], `\`))
	return backslashes%2 == 0 // otherwise the backslash itself is escaped
}

// argumentsText returns the text of a piece of a call's arguments.
func argumentsText(j *surrogateJoiner, raw json.RawMessage) string {
	switch {
	case isString(raw):
		return j.decode(raw)
	case len(raw) == 0 || string(raw) == "null":
		return ""
	default:
		return string(raw) // the object itself
	}
}

// usage is the usage of a request so far.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	// CacheHit is the field in which DeepSeek reports cached tokens.
	CacheHit int64   `json:"prompt_cache_hit_tokens"`
	Cost     float64 `json:"cost"` // in US dollars; only OpenRouter sends it
}

func (u usage) cached() int64 { return cmp.Or(u.Details.Cached, u.CacheHit) }
