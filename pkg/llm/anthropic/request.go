package anthropic

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// newRequest converts req to the provider's format.
//
// The provider caches everything before a breakpoint for five minutes, and charges a tenth of the price for
// reading it again. There are breakpoints after the tools, after the system prompt, and after the last message of a
// conversation that goes on. The next round begins with all of these, and so does the next turn. A breakpoint after too
// little text for the cache costs nothing.
func (m *model) newRequest(req llm.Request) sdk.MessageNewParams {
	params := sdk.MessageNewParams{
		Model:     m.model,
		MaxTokens: m.maxTokens,
		Messages:  toMessages(req.Messages),
		Tools:     toTools(req.Tools),
	}
	if system := req.Instructions(); system != "" {
		params.System = []sdk.TextBlockParam{{Text: system, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	if len(req.Tools) == 0 {
		if params.Tools = toTools(mentionedTools(req.Messages)); len(params.Tools) > 0 {
			params.ToolChoice = sdk.ToolChoiceUnionParam{OfNone: &sdk.ToolChoiceNoneParam{}}
		}
	}
	if req.Temperature != nil && !m.thinkingEnabled { // the provider rejects a temperature if the model thinks
		params.Temperature = sdk.Float(min(1, *req.Temperature))
	}
	if m.thinkingEnabled {
		params.Thinking = sdk.ThinkingConfigParamUnion{OfAdaptive: &sdk.ThinkingConfigAdaptiveParam{}}
	}
	return params
}

// toTools converts specs to the provider's format, with a cache breakpoint after the last tool.
func toTools(specs []llm.ToolSpec) []sdk.ToolUnionParam {
	var all []sdk.ToolUnionParam
	for _, spec := range specs {
		t := &sdk.ToolParam{Name: spec.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](toSchema(spec))}
		if spec.Description != "" {
			t.Description = sdk.String(spec.Description)
		}
		all = append(all, sdk.ToolUnionParam{OfTool: t})
	}
	if len(all) > 0 {
		all[len(all)-1].OfTool.CacheControl = sdk.NewCacheControlEphemeralParam()
	}
	return all
}

// toSchema returns the schema of a tool's arguments. The provider requires one for every tool.
func toSchema(spec llm.ToolSpec) json.RawMessage {
	if len(spec.Schema) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	return spec.Schema
}

// mentionedTools returns the tools that the messages mention. The provider requires their declarations even if the
// model may no longer call them.
func mentionedTools(messages []conversation.Message) []llm.ToolSpec {
	var all []llm.ToolSpec
	known := map[string]bool{}
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			if !known[c.Name] {
				known[c.Name] = true
				all = append(all, llm.ToolSpec{Name: c.Name})
			}
		}
	}
	return all
}

// missingBeginningNote is put before a conversation whose first message is not from the user, because the provider
// rejects such a conversation.
const missingBeginningNote = "(The conversation began before this.)"

// toMessages converts a conversation to the form that the provider requires. Messages of the user and the
// assistant alternate, and the results of one round are in one message.
func toMessages(all []conversation.Message) []sdk.MessageParam {
	var out []sdk.MessageParam
	add := func(role sdk.MessageParamRole, blocks []sdk.ContentBlockParamUnion) {
		switch last := len(out) - 1; {
		case len(blocks) == 0:
		case last >= 0 && out[last].Role == role:
			out[last].Content = append(out[last].Content, blocks...)
		case last < 0 && role == sdk.MessageParamRoleAssistant:
			out = append(out, sdk.NewUserMessage(sdk.NewTextBlock(missingBeginningNote)), sdk.MessageParam{Role: role, Content: blocks})
		default:
			out = append(out, sdk.MessageParam{Role: role, Content: blocks})
		}
	}
	for _, m := range all {
		switch m.ReaderRole() {
		case conversation.RoleSystem: // already part of the instructions
		case conversation.RoleAssistant:
			add(sdk.MessageParamRoleAssistant, assistantBlocks(m))
		case conversation.RoleTool:
			add(sdk.MessageParamRoleUser, []sdk.ContentBlockParamUnion{{OfToolResult: toolResultBlock(m)}})
		default:
			add(sdk.MessageParamRoleUser, userBlocks(m))
		}
	}
	addBreakpoint(out)
	return out
}

// addBreakpoint adds a cache breakpoint after the last block of a conversation that goes on. The first message of a
// conversation gets none, because storing it would cost more than sending it, and there may be no second turn.
func addBreakpoint(messages []sdk.MessageParam) {
	if len(messages) < 2 {
		return
	}
	last := messages[len(messages)-1]
	if c := last.Content[len(last.Content)-1].GetCacheControl(); c != nil && last.Role == sdk.MessageParamRoleUser {
		*c = sdk.NewCacheControlEphemeralParam()
	}
}

// assistantBlocks returns the blocks of an assistant message. Thoughts come where the model had them: before the
// text, and before later calls.
func assistantBlocks(m conversation.Message) []sdk.ContentBlockParamUnion {
	var blocks []sdk.ContentBlockParamUnion
	if len(m.ToolCalls) > 0 {
		blocks = append(blocks, decodeThoughts(m.ToolCalls[0].Extra)...)
	}
	blocks = append(blocks, textBlocks(m.Text)...)
	for i, c := range m.ToolCalls {
		if i > 0 {
			blocks = append(blocks, decodeThoughts(c.Extra)...)
		}
		blocks = append(blocks, sdk.NewToolUseBlock(sanitizeID(c.ID), jsonObject(c.Arguments), c.Name))
	}
	return blocks
}

// jsonObject returns the arguments of a call as a JSON object. Invalid arguments become the value of a field,
// so that the model sees what it wrote.
func jsonObject(arguments string) any {
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(cmp.Or(arguments, "{}")), &o) != nil || o == nil {
		return map[string]string{"INVALID_JSON": arguments}
	}
	return json.RawMessage(cmp.Or(arguments, "{}"))
}

// textBlocks returns a block with the text. It returns none for an empty text, because the provider rejects empty
// blocks.
func textBlocks(s string) []sdk.ContentBlockParamUnion {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return []sdk.ContentBlockParamUnion{sdk.NewTextBlock(s)}
}

// invalidIDCharacter matches a character that the provider does not accept in the id of a call. Ids from other
// providers may contain such characters.
var invalidIDCharacter = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

func sanitizeID(s string) string { return invalidIDCharacter.ReplaceAllString(s, "_") }
