package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// request is a request of the Chat Completions API, with the fields that the adapter sends.
type request struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	Tools         []tool         `json:"tools,omitempty"`
	Temperature   *float64       `json:"temperature,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// message is one message of a conversation. Content is a string or a list of parts (nil omits it).
type message struct {
	Role       conversation.Role `json:"role"`
	Content    any               `json:"content,omitempty"`
	ToolCalls  []toolCall        `json:"tool_calls,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
}

// part is one part of a message that has files.
type part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
	File     *file     `json:"file,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type file struct {
	Name string `json:"filename"`
	Data string `json:"file_data"` // as a data URL
}

type toolCall struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Function functionCall    `json:"function"`
	Extra    json.RawMessage `json:"extra_content,omitempty"` // what the provider sent with the call (CO-11)
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

// function describes a tool. Its schema is sent exactly as the author wrote it, because the order of properties
// influences models.
type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// newHTTPRequest returns the HTTP request for req.
func (m *model) newHTTPRequest(ctx context.Context, req llm.Request) (*http.Request, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m.newRequest(req)); err != nil {
		return nil, err
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, &body)
	if err != nil {
		return nil, err
	}
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Accept", "text/event-stream")
	out.Header.Set("User-Agent", "troupe")
	if key := m.source.Key.Reveal(); key != "" {
		out.Header.Set("Authorization", "Bearer "+key)
	}
	return out, nil
}

func (m *model) newRequest(req llm.Request) request {
	r := request{Model: m.model, Messages: m.toMessages(req), Tools: toTools(req.Tools), Stream: true}
	if !m.fixedTemperature {
		r.Temperature = req.Temperature
	}
	if !m.plainStream {
		r.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	return r
}

// instructions returns the system prompt. If the request has choices, the prompt ends with the instruction to name
// one. No parameter for this works on all servers.
func instructions(req llm.Request) string {
	if len(req.Choices) == 0 {
		return req.System
	}
	return strings.TrimSpace(req.System + "\n\n" + req.ChoiceInstruction())
}

// toMessages converts the conversation to the provider's format. It omits empty messages, except tool results,
// because the provider requires a result for each call.
func (m *model) toMessages(req llm.Request) []message {
	all := make([]message, 0, 1+len(req.Messages))
	if system := instructions(req); system != "" {
		all = append(all, message{Role: conversation.RoleSystem, Content: system})
	}
	var files []part // of the results of the round
	for i, said := range req.Messages {
		switch {
		case said.Role == conversation.RoleTool:
			result, parts := m.toToolMessage(said)
			all, files = append(all, result), append(files, parts...)
			if isLast := i+1 == len(req.Messages) || req.Messages[i+1].Role != conversation.RoleTool; isLast && len(files) > 0 {
				all, files = append(all, message{Role: conversation.RoleUser, Content: files}), nil
			}
		case said.Text == "" && len(said.ToolCalls) == 0 && len(said.Attachments) == 0:
		case said.Role == conversation.RoleAssistant:
			all = append(all, toAssistantMessage(said))
		case said.ReaderRole() == conversation.RoleSystem:
			all = append(all, message{Role: conversation.RoleSystem, Content: said.Text})
		default: // includes summaries, because many servers accept a system message only as the first message
			all = append(all, m.toUserMessage(said))
		}
	}
	if m.strictOrder {
		return bridgeResults(all)
	}
	return all
}

// bridgeResults adds a message of the assistant between tool results and a message of the user.
func bridgeResults(all []message) []message {
	var out []message
	for i, said := range all {
		if i > 0 && all[i-1].Role == conversation.RoleTool && said.Role == conversation.RoleUser {
			out = append(out, message{Role: conversation.RoleAssistant, Content: "I have the results."})
		}
		out = append(out, said)
	}
	return out
}

func toAssistantMessage(said conversation.Message) message {
	out := message{Role: conversation.RoleAssistant}
	if said.Text != "" {
		out.Content = said.Text
	}
	for _, c := range said.ToolCalls {
		call := toolCall{ID: c.ID, Type: "function", Function: functionCall{Name: c.Name, Arguments: c.Arguments}}
		if json.Valid([]byte(c.Extra)) { // otherwise it comes from a provider with another format
			call.Extra = json.RawMessage(c.Extra)
		}
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out
}

func toTools(specs []llm.ToolSpec) []tool {
	var all []tool
	for _, spec := range specs {
		all = append(all, tool{Type: "function", Function: function{Name: spec.Name, Description: spec.Description, Parameters: spec.Schema}})
	}
	return all
}
