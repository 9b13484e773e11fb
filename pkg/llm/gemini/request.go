package gemini

import (
	"cmp"
	"encoding/json"
	"strings"

	"google.golang.org/genai"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// newConfig converts everything in req except the messages to the provider's format.
func (m *model) newConfig(req llm.Request) *genai.GenerateContentConfig {
	c := &genai.GenerateContentConfig{
		MaxOutputTokens:       m.maxTokens,
		AutomaticContinuation: new(bool), // Generate sends exactly one request
	}
	if req.Temperature != nil {
		c.Temperature = new(float32(*req.Temperature))
	}
	if system := req.Instructions(); system != "" {
		c.SystemInstruction = &genai.Content{Parts: []*genai.Part{{Text: system}}}
	}
	if len(req.Choices) > 0 {
		c.ResponseMIMEType = "text/x.enum"
		c.ResponseSchema = &genai.Schema{Type: genai.TypeString, Enum: req.Choices}
	}
	if len(req.Tools) > 0 {
		c.Tools = []*genai.Tool{{FunctionDeclarations: toFunctions(req.Tools)}}
	}
	return c
}

// toFunctions converts specs to the provider's format.
func toFunctions(specs []llm.ToolSpec) []*genai.FunctionDeclaration {
	all := make([]*genai.FunctionDeclaration, 0, len(specs))
	for _, spec := range specs {
		f := &genai.FunctionDeclaration{Name: spec.Name, Description: spec.Description}
		if len(spec.Schema) > 0 {
			f.ParametersJsonSchema = spec.Schema
		}
		all = append(all, f)
	}
	return all
}

// missingBeginningNote is put before a conversation whose first message is not from the user, because the provider
// rejects such a conversation.
const missingBeginningNote = "(The conversation began before this.)"

// toContents converts messages to the form that the provider requires. Messages of the user and the model
// alternate. The results of a round are in one content, in the order of their calls, and nothing else is in it.
func (m *model) toContents(all []conversation.Message) []*genai.Content {
	var out []*genai.Content
	add := func(role string, parts []*genai.Part) {
		switch last := len(out) - 1; {
		case len(parts) == 0:
		case last >= 0 && out[last].Role == role && isResult(out[last].Parts[0]) == isResult(parts[0]):
			out[last].Parts = append(out[last].Parts, parts...)
		case last < 0 && role == genai.RoleModel:
			out = append(out, genai.NewContentFromText(missingBeginningNote, genai.RoleUser), &genai.Content{Role: role, Parts: parts})
		default:
			out = append(out, &genai.Content{Role: role, Parts: parts})
		}
	}
	calls := map[string]conversation.ToolCall{}
	var files []*genai.Part // of the results of the round
	for i, msg := range all {
		switch msg.ReaderRole() {
		case conversation.RoleSystem: // already part of the instructions
		case conversation.RoleAssistant:
			for _, c := range msg.ToolCalls {
				calls[c.ID] = c
			}
			add(genai.RoleModel, m.assistantParts(msg))
		case conversation.RoleTool:
			result, after := m.toolResultParts(calls[msg.ToolCallID], msg)
			add(genai.RoleUser, []*genai.Part{result})
			if files = append(files, after...); i+1 == len(all) || all[i+1].Role != conversation.RoleTool {
				add(genai.RoleUser, files)
				files = nil
			}
		default:
			add(genai.RoleUser, userParts(msg))
		}
	}
	return out
}

func isResult(p *genai.Part) bool { return p.FunctionResponse != nil }

// countCalls returns how many tool calls the messages contain.
func countCalls(all []conversation.Message) int {
	n := 0
	for _, m := range all {
		n += len(m.ToolCalls)
	}
	return n
}

// assistantParts returns the parts of an assistant message.
func (m *model) assistantParts(msg conversation.Message) []*genai.Part {
	parts := textParts(msg.Text)
	for i, c := range msg.ToolCalls {
		e := decodeExtra(c.Extra)
		if i == 0 && len(e.Signature) == 0 && m.isThirdGeneration() {
			e.Signature = []byte(placeholderSignature)
		}
		parts = append(parts, &genai.Part{
			ThoughtSignature: e.Signature,
			FunctionCall:     &genai.FunctionCall{ID: e.ID, Name: c.Name, Args: jsonObject(c.Arguments)},
		})
	}
	return parts
}

// isThirdGeneration reports whether the model is of the third generation or later. It then rejects calls without a
// signature, and accepts files in the results of tools.
func (m *model) isThirdGeneration() bool {
	return !strings.HasPrefix(m.model, "gemini-1") && !strings.HasPrefix(m.model, "gemini-2")
}

// jsonObject returns the arguments of a call as a JSON object. Invalid arguments become the value of a field,
// so that the model sees what it wrote.
func jsonObject(arguments string) map[string]any {
	var o map[string]any
	if json.Unmarshal([]byte(cmp.Or(arguments, "{}")), &o) != nil || o == nil {
		return map[string]any{"INVALID_JSON": arguments}
	}
	return o
}

// textParts returns a part with the text. It returns none for an empty text, because the provider rejects empty
// parts.
func textParts(s string) []*genai.Part {
	if s == "" {
		return nil
	}
	return []*genai.Part{{Text: s}}
}
