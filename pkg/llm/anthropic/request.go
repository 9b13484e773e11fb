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

// request returns req in the provider's form.
//
// The provider caches everything before a breakpoint for five minutes, and charges a tenth of the price to read it
// again. There is one breakpoint after the tools, one after the system prompt, and one after the last tool result
// of a step, because the next round begins with all of it. A beginning that is too short to be cached costs
// nothing extra.
func (m *model) request(req llm.Request) sdk.MessageNewParams {
	params := sdk.MessageNewParams{
		Model:     m.model,
		MaxTokens: m.maxTokens,
		Messages:  messages(req.Messages),
		Tools:     tools(req.Tools),
	}
	if system := req.Instructions(); system != "" {
		params.System = []sdk.TextBlockParam{{Text: system, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	if len(req.Tools) == 0 {
		if params.Tools = tools(mentionedTools(req.Messages)); len(params.Tools) > 0 {
			params.ToolChoice = sdk.ToolChoiceUnionParam{OfNone: &sdk.ToolChoiceNoneParam{}}
		}
	}
	if req.Temperature != nil && !m.thinkingEnabled { // one that thinks takes none
		params.Temperature = sdk.Float(min(1, *req.Temperature))
	}
	if m.thinkingEnabled {
		params.Thinking = sdk.ThinkingConfigParamUnion{OfAdaptive: &sdk.ThinkingConfigAdaptiveParam{}}
	}
	return params
}

// tools returns the specs in the provider's form, with a breakpoint after the last one.
func tools(specs []llm.ToolSpec) []sdk.ToolUnionParam {
	var all []sdk.ToolUnionParam
	for _, spec := range specs {
		t := &sdk.ToolParam{Name: spec.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema(spec))}
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

// schema returns the schema of the arguments. The provider requires one for every tool.
func schema(spec llm.ToolSpec) json.RawMessage {
	if len(spec.Schema) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	return spec.Schema
}

// mentionedTools returns the tools that the messages mention. The provider requires their declarations even if the model
// may not call them any more.
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

// missingBeginning is put before a conversation whose first message is not from the user, because the provider rejects such
// a conversation.
const missingBeginning = "(The conversation began before this.)"

// messages returns a conversation in the form that the provider requires: messages of the user and the assistant
// alternate, and the results of one round are together.
func messages(all []conversation.Message) []sdk.MessageParam {
	var out []sdk.MessageParam
	add := func(role sdk.MessageParamRole, blocks []sdk.ContentBlockParamUnion) {
		switch last := len(out) - 1; {
		case len(blocks) == 0:
		case last >= 0 && out[last].Role == role:
			out[last].Content = append(out[last].Content, blocks...)
		case last < 0 && role == sdk.MessageParamRoleAssistant:
			out = append(out, sdk.NewUserMessage(sdk.NewTextBlock(missingBeginning)), sdk.MessageParam{Role: role, Content: blocks})
		default:
			out = append(out, sdk.MessageParam{Role: role, Content: blocks})
		}
	}
	for i, m := range all {
		switch m.ReaderRole() {
		case conversation.RoleSystem: // is part of the instructions
		case conversation.RoleAssistant:
			add(sdk.MessageParamRoleAssistant, assistantBlocks(m))
		case conversation.RoleTool:
			r := toolResultBlock(m)
			if i == len(all)-1 {
				r.CacheControl = sdk.NewCacheControlEphemeralParam()
			}
			add(sdk.MessageParamRoleUser, []sdk.ContentBlockParamUnion{{OfToolResult: r}})
		default:
			add(sdk.MessageParamRoleUser, userBlocks(m))
		}
	}
	return out
}

// assistantBlocks returns the blocks of an assistant message. Thoughts are where the model had them: before its first words,
// and before its later calls.
func assistantBlocks(m conversation.Message) []sdk.ContentBlockParamUnion {
	var blocks []sdk.ContentBlockParamUnion
	if len(m.ToolCalls) > 0 {
		blocks = append(blocks, thoughts(m.ToolCalls[0].Extra)...)
	}
	blocks = append(blocks, textBlocks(m.Text)...)
	for i, c := range m.ToolCalls {
		if i > 0 {
			blocks = append(blocks, thoughts(c.Extra)...)
		}
		blocks = append(blocks, sdk.NewToolUseBlock(cleanID(c.ID), argumentsObject(c.Arguments), c.Name))
	}
	return blocks
}

// toolResultBlock returns the block of a tool result, also if it is empty.
func toolResultBlock(m conversation.Message) *sdk.ToolResultBlockParam {
	r := &sdk.ToolResultBlockParam{ToolUseID: cleanID(m.ToolCallID)}
	if strings.TrimSpace(m.Text) != "" {
		r.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: m.Text}}}
	}
	return r
}

// argumentsObject returns the arguments of a call. Arguments that are no JSON object become an object with the text, so that the
// model sees what it wrote.
func argumentsObject(arguments string) any {
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(cmp.Or(arguments, "{}")), &o) != nil || o == nil {
		return map[string]string{"INVALID_JSON": arguments}
	}
	return json.RawMessage(cmp.Or(arguments, "{}"))
}

// textBlocks returns a block of text, or none if it is empty, because the provider rejects empty blocks.
func textBlocks(s string) []sdk.ContentBlockParamUnion {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return []sdk.ContentBlockParamUnion{sdk.NewTextBlock(s)}
}

// invalidInID matches the characters that the provider does not accept in the id of a call. Ids of other providers may
// have some.
var invalidInID = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

func cleanID(s string) string { return invalidInID.ReplaceAllString(s, "_") }
