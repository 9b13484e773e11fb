package openaitest

import "fmt"

// Form says how a server sends the reasoning of its model, and expects it back.
type Form string

// The forms, with the servers that use them.
const (
	// ReasoningContent is a field of that name: DeepSeek (https://api-docs.deepseek.com/guides/thinking_mode), Moonshot
	// (https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model), llama.cpp and others.
	ReasoningContent Form = "reasoning_content"
	// ReasoningField is the field "reasoning": Ollama (https://docs.ollama.com/api/openai-compatibility) and vLLM
	// (https://docs.vllm.ai/en/latest/features/reasoning_outputs.html).
	ReasoningField Form = "reasoning"
	// ReasoningDetails is the field "reasoning" and a list of details with signatures, which must come back unchanged:
	// OpenRouter (https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks). The pieces of a
	// detail are as in a recorded stream:
	// https://github.com/charmbracelet/fantasy/tree/main/providertests/testdata/TestOpenRouterThinking
	ReasoningDetails Form = "reasoning_details"
	// ContentList is a list of parts as the content: Mistral (https://docs.mistral.ai/capabilities/reasoning). The
	// shape of the pieces is as reported in https://github.com/agentjido/req_llm/issues/742, and of what comes back in
	// https://github.com/vercel/ai/issues/17930.
	ContentList Form = "thinking"
	// ThinkTag is <think> in the text: MiniMax (https://platform.minimax.io/docs/guides/text-m2-function-call), and
	// local servers without a parser for their model. The tags are split over chunks, as reported in
	// https://github.com/LibreChat-AI/agents/pull/40.
	ThinkTag Form = "think"
)

// signature is the signature in the reasoning details.
const signature = "c2lnbmVkIHRob3VnaHQ="

// thoughtDeltas returns the deltas that contain the thoughts.
func (w Wire) thoughtDeltas(thoughts []string) (all []jsonObject) {
	if len(thoughts) == 0 {
		return nil
	}
	detail := func(fields jsonObject) []jsonObject {
		fields["type"], fields["format"], fields["index"] = "reasoning.text", "anthropic-claude-v1", 0
		return []jsonObject{fields}
	}
	for _, thought := range thoughts {
		switch w.Form {
		case ReasoningField:
			all = append(all, jsonObject{"content": "", "reasoning": thought})
		case ReasoningDetails:
			all = append(all, jsonObject{"content": "", "reasoning": thought, "reasoning_details": detail(jsonObject{"text": thought})})
		case ContentList:
			all = append(all, jsonObject{"content": thinkingParts(thought)})
		case ThinkTag:
			all = append(all, jsonObject{"content": thought})
		default:
			all = append(all, jsonObject{"content": nil, "reasoning_content": thought})
		}
	}
	switch w.Form {
	case ReasoningDetails:
		all = append(all, jsonObject{"content": "", "reasoning": nil, "reasoning_details": detail(jsonObject{"signature": signature})})
	case ThinkTag:
		all = append([]jsonObject{{"content": "<th"}, {"content": "ink>"}}, all...)
		all = append(all, jsonObject{"content": "</thi"}, jsonObject{"content": "nk>\n"}, jsonObject{"content": "\n"})
	default: // nothing follows
	}
	return all
}

// thinkingParts returns a content with a thought.
func thinkingParts(thought string) []jsonObject {
	return []jsonObject{{"type": "thinking", "thinking": []jsonObject{{"type": "text", "text": thought}}}}
}

// text returns a content with a text.
func (w Wire) text(text string) any {
	if w.Form == ContentList {
		return []jsonObject{{"type": "text", "text": text}}
	}
	return text
}

// wholeThought returns the fields of a whole message that contain its thought.
func (w Wire) wholeThought(thought, text string) jsonObject {
	switch {
	case thought == "":
		return nil
	case w.Form == ReasoningField:
		return jsonObject{"reasoning": thought}
	case w.Form == ReasoningDetails:
		return jsonObject{"reasoning": thought, "reasoning_details": []jsonObject{
			{"type": "reasoning.text", "text": thought, "signature": signature, "format": "anthropic-claude-v1", "index": 0},
		}}
	case w.Form == ContentList:
		return jsonObject{"content": append(thinkingParts(thought), jsonObject{"type": "text", "text": text})}
	case w.Form == ThinkTag:
		return jsonObject{"content": "<think>" + thought + "</think>\n\n" + text}
	}
	return jsonObject{"reasoning_content": thought}
}

// reasoningFields are the fields of a message with reasoning.
type reasoningFields struct {
	ReasoningContent *string `json:"reasoning_content"`
	Reasoning        string  `json:"reasoning"`
	ReasoningDetails []struct {
		Type, Text, Signature, Format string
		Index                         int
	} `json:"reasoning_details"`
}

// decodeThought returns the reasoning in a message, whose content has the given thought. It returns an error if the
// reasoning is not in the form of the server.
func (f reasoningFields) decodeThought(form Form, thought string) (string, error) {
	found := map[Form]string{ReasoningField: f.Reasoning}
	if f.ReasoningContent != nil {
		found[ReasoningContent] = *f.ReasoningContent
	}
	for _, d := range f.ReasoningDetails {
		found[ReasoningDetails] += d.Text
		if d.Signature != signature || d.Format == "" || d.Type != "reasoning.text" {
			return "", fmt.Errorf("the reasoning details are not what they were: %+v", d)
		}
	}
	if form == ContentList || form == ThinkTag {
		found[form] = thought
		thought = ""
	}
	for of, text := range found {
		if text != "" && of != form {
			return "", fmt.Errorf("property of the form %q is unsupported", of)
		}
	}
	if thought != "" {
		return "", fmt.Errorf("the content has the thought %q", thought)
	}
	return found[form], nil
}
