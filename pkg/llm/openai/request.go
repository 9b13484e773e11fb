package openai

import (
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// request is req as the provider wants it.
func (m *model) request(req llm.Request) sdk.ChatCompletionNewParams {
	params := sdk.ChatCompletionNewParams{Model: m.model, Messages: m.messages(req), Tools: tools(req.Tools)}
	if req.Temperature != nil && !m.fixed {
		params.Temperature = sdk.Float(*req.Temperature)
	}
	if !m.plain {
		params.StreamOptions.IncludeUsage = sdk.Bool(true)
	}
	return params
}

// instructions are the system prompt, and how a choice is to be made. No form of the format
// that restricts an answer to some words is known to all servers, so they are asked for.
func instructions(req llm.Request) string {
	if len(req.Choices) == 0 {
		return req.System
	}
	return strings.TrimSpace(req.System + "\n\n" + req.HowToChoose())
}

// messages are those of a conversation as the provider wants them. Empty ones are left out,
// except results: a tool that has nothing to say has answered too.
func (m *model) messages(req llm.Request) []sdk.ChatCompletionMessageParamUnion {
	all := make([]sdk.ChatCompletionMessageParamUnion, 0, 1+len(req.Messages))
	if system := instructions(req); system != "" {
		all = append(all, sdk.SystemMessage(system))
	}
	for _, said := range req.Messages {
		switch {
		case said.Role == conversation.RoleTool:
			all = append(all, sdk.ToolMessage(said.Text, said.ToolCallID))
		case said.Text == "" && len(said.ToolCalls) == 0 && len(said.Attachments) == 0:
		case said.Role == conversation.RoleAssistant:
			all = append(all, sdk.ChatCompletionMessageParamUnion{OfAssistant: assistant(said)})
		case said.Reader() == conversation.RoleSystem:
			all = append(all, sdk.SystemMessage(said.Text))
		default: // a summary too: many servers take a system message in the first place only
			all = append(all, m.user(said))
		}
	}
	return all
}

func assistant(m conversation.Message) *sdk.ChatCompletionAssistantMessageParam {
	said := &sdk.ChatCompletionAssistantMessageParam{}
	if m.Text != "" {
		said.Content.OfString = sdk.String(m.Text)
	}
	for _, c := range m.ToolCalls {
		call := &sdk.ChatCompletionMessageFunctionToolCallParam{
			ID:       c.ID,
			Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: c.Arguments},
		}
		if json.Valid([]byte(c.Extra)) { // else it is of a provider of another format
			call.SetExtraFields(map[string]any{"extra_content": json.RawMessage(c.Extra)})
		}
		said.ToolCalls = append(said.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: call})
	}
	return said
}

// tools are the specs as the provider wants them. A schema goes out as it was written: the
// order of its properties says something to a model.
func tools(specs []llm.ToolSpec) []sdk.ChatCompletionToolUnionParam {
	var all []sdk.ChatCompletionToolUnionParam
	for _, spec := range specs {
		f := shared.FunctionDefinitionParam{Name: spec.Name}
		if spec.Description != "" {
			f.Description = sdk.String(spec.Description)
		}
		if len(spec.Schema) > 0 {
			f.SetExtraFields(map[string]any{"parameters": spec.Schema})
		}
		all = append(all, sdk.ChatCompletionFunctionTool(f))
	}
	return all
}
