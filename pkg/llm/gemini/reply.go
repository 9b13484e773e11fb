package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/genai"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// reply holds the message of the model while it arrives.
type reply struct {
	earlierCalls int // number of tool calls in the conversation before this message
	calls        []conversation.ToolCall
	usage        execution.Usage
	finishReason genai.FinishReason
	blocked      genai.BlockedReason // why the provider blocked the prompt (empty if it did not)
	details      string              // the provider's explanation of why it stopped the message
}

// applyItem adds the next item of the stream to the reply, and returns the text and the thoughts in it.
func (r *reply) applyItem(piece *genai.GenerateContentResponse) (llm.Delta, error) {
	if u := piece.UsageMetadata; u != nil { // covers all pieces so far
		r.usage = execution.Usage{
			InputTokens:  int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount),
			OutputTokens: int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount),
			CachedTokens: int64(u.CachedContentTokenCount),
		}
	}
	if f := piece.PromptFeedback; f != nil && f.BlockReason != "" {
		r.blocked, r.details = f.BlockReason, f.BlockReasonMessage
	}
	if len(piece.Candidates) == 0 {
		return llm.Delta{}, nil
	}
	candidate := piece.Candidates[0]
	if candidate.FinishReason != "" {
		r.finishReason, r.details = candidate.FinishReason, candidate.FinishMessage
	}
	if candidate.Content == nil {
		return llm.Delta{}, nil
	}
	var said llm.Delta
	for _, part := range candidate.Content.Parts {
		switch {
		case part == nil:
		case part.Thought:
			said.Thought += part.Text
		case part.FunctionCall != nil:
			if err := r.addCall(part); err != nil {
				return llm.Delta{}, err
			}
		default:
			said.Text += part.Text
		}
	}
	return said, nil
}

// addCall adds a tool call to the reply. Most calls have no id from the provider. They get an id from the number
// of the call in the conversation, so that the same conversation leads to the same id.
func (r *reply) addCall(part *genai.Part) error {
	f := part.FunctionCall
	args, err := encodeArguments(f.Args)
	if err != nil {
		return fmt.Errorf("the arguments of tool %s: %w", f.Name, err)
	}
	id := f.ID
	if id == "" {
		id = fmt.Sprintf("gemini_%d", r.earlierCalls+len(r.calls)+1)
	}
	r.calls = append(r.calls, conversation.ToolCall{
		ID: id, Name: f.Name, Arguments: args,
		Extra: encodeExtra(extra{ID: f.ID, Signature: part.ThoughtSignature}),
	})
	return nil
}

// encodeArguments encodes the arguments of a call as a JSON object.
func encodeArguments(args map[string]any) (string, error) {
	if args == nil {
		return "{}", nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(args); err != nil {
		return "", err
	}
	return strings.TrimSpace(b.String()), nil
}

// stopReason returns why the provider stopped the message, for the log.
func (r *reply) stopReason() string {
	return strings.TrimSpace(string(r.blocked) + string(r.finishReason) + " " + r.details)
}
