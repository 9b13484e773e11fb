package openai

import (
	"cmp"
	"encoding/json"
	"strings"
)

// chunk is one event of a stream, or a whole answer, with the fields that the adapter uses.
type chunk struct {
	Object  string          `json:"object"` // "error" for an error that has no field error, as vLLM sends it
	Error   json.RawMessage `json:"error"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
}

// isError reports whether the chunk is an error.
func (c chunk) isError() bool { return isPresent(c.Error) || c.Object == "error" }

type choice struct {
	Delta        *output  `json:"delta"`
	Message      *output  `json:"message"` // whole answer, of servers that do not stream
	FinishReason jsonText `json:"finish_reason"`
	// NativeFinishReason is the reason of the provider behind OpenRouter, which reports only a few reasons of its own.
	NativeFinishReason jsonText `json:"native_finish_reason"`
}

// output is a message of the model, or a part of it.
type output struct {
	Content content  `json:"content"`
	Refusal jsonText `json:"refusal"`
	// Servers send the reasoning under one of these names. Some send the same text under both.
	ReasoningContent jsonText    `json:"reasoning_content"`
	Reasoning        jsonText    `json:"reasoning"`
	ReasoningDetails details     `json:"reasoning_details"`
	ToolCalls        []callPiece `json:"tool_calls"`
	// FunctionCall is the older form of a tool call, which some servers still send.
	FunctionCall *functionPiece `json:"function_call"`
}

// reasoning returns the reasoning and its form. The form is empty if the server sent no text. An empty text counts,
// because a server may expect it back.
func (o output) reasoning() (string, reasoningForm) {
	switch {
	case o.ReasoningContent.isSet:
		return o.ReasoningContent.text, formReasoningContent
	case o.Reasoning.isSet:
		return o.Reasoning.text, formReasoning
	case len(o.Content.thoughts) > 0:
		return strings.Join(o.Content.thoughts, ""), formParts
	}
	return o.ReasoningDetails.text(), ""
}

// callPiece is a part of a tool call.
type callPiece struct {
	Index    int             `json:"index"`
	ID       string          `json:"id"`
	Function functionPiece   `json:"function"`
	Extra    json.RawMessage `json:"extra_content"` // the server needs it back with the call (CO-11)
}

type functionPiece struct {
	Name      string    `json:"name"`
	Arguments arguments `json:"arguments"`
}

// arguments is part of a JSON text, as a string. Some servers send the object itself.
type arguments string

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(data []byte) error {
	switch {
	case data[0] == '"':
		return json.Unmarshal(data, (*string)(a))
	case string(data) != "null":
		*a = arguments(data)
	}
	return nil
}

// jsonText is a field that holds a text. It ignores values of other types, such as null.
type jsonText struct {
	text  string
	isSet bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *jsonText) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		return nil
	}
	t.isSet = true
	return json.Unmarshal(data, &t.text)
}

// content is the text of a message, which is a string or a list of parts. Mistral's reasoning models send their
// thoughts as parts of the list.
type content struct {
	texts    []string
	thoughts []string
}

// UnmarshalJSON implements json.Unmarshaler. It ignores parts that are neither text nor thoughts.
func (c *content) UnmarshalJSON(data []byte) error {
	if data[0] != '[' {
		var t jsonText
		if err := t.UnmarshalJSON(data); err != nil || t.text == "" {
			return err
		}
		c.texts = []string{t.text}
		return nil
	}
	var parts []struct {
		Type     string   `json:"type"`
		Text     jsonText `json:"text"`
		Thinking content  `json:"thinking"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		switch p.Type {
		case "text":
			c.texts = append(c.texts, p.Text.text)
		case "thinking":
			c.thoughts = append(c.thoughts, p.Thinking.texts...)
		}
	}
	return nil
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
