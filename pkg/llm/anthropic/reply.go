package anthropic

import (
	"cmp"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// reply holds the message of the model while it arrives.
type reply struct {
	blocks      map[int64]*block
	thoughts    []thought // thoughts since the last call
	calls       []conversation.ToolCall
	used        sdk.Usage
	stopReason  sdk.StopReason
	stopDetails string // the provider's explanation of why it stopped the message
	isComplete  bool
}

// block is a part of the message that is still incomplete. Text needs no block, because it is yielded as it
// arrives.
type block struct {
	call    *conversation.ToolCall // the tool call (nil for a thought)
	thought thought
	text    strings.Builder // the arguments of the call, or the text of the thought
}

// applyEvent adds the next event to the reply, and returns the text and the thoughts in it. It ignores unknown
// events and blocks, because the provider may add new ones.
func (r *reply) applyEvent(e sdk.MessageStreamEventUnion) llm.Delta {
	switch e.Type {
	case "message_start":
		r.used = e.Message.Usage
	case "content_block_start":
		return r.startBlock(e)
	case "content_block_delta":
		return r.appendDelta(e)
	case "content_block_stop":
		r.finishBlock(e.Index)
	case "message_delta":
		r.stopReason, r.stopDetails = e.Delta.StopReason, e.Delta.StopDetails.Explanation
		r.updateUsage(e.Usage)
	case "message_stop":
		r.isComplete = true
	}
	return llm.Delta{}
}

// startBlock begins a block.
func (r *reply) startBlock(e sdk.MessageStreamEventUnion) llm.Delta {
	b := &block{}
	var said llm.Delta
	switch c := e.ContentBlock; c.Type {
	case "text":
		return llm.Delta{Text: c.Text}
	case "tool_use":
		b.call = &conversation.ToolCall{ID: c.ID, Name: c.Name, Arguments: c.JSON.Input.Raw()}
	case "thinking":
		b.thought.Signature = c.Signature
		b.text.WriteString(c.Thinking)
		said.Thought = c.Thinking
	case "redacted_thinking":
		b.thought.Redacted = c.Data
	default:
		return llm.Delta{}
	}
	if r.blocks == nil {
		r.blocks = map[int64]*block{}
	}
	r.blocks[e.Index] = b
	return said
}

// appendDelta adds to a block.
func (r *reply) appendDelta(e sdk.MessageStreamEventUnion) llm.Delta {
	if b := r.blocks[e.Index]; b != nil {
		b.text.WriteString(e.Delta.PartialJSON)
		b.text.WriteString(e.Delta.Thinking)
		b.thought.Signature += e.Delta.Signature
	}
	return llm.Delta{Text: e.Delta.Text, Thought: e.Delta.Thinking}
}

// finishBlock completes a block. A call gets the thoughts that came before it.
func (r *reply) finishBlock(index int64) {
	b := r.blocks[index]
	delete(r.blocks, index)
	switch {
	case b == nil:
	case b.call == nil:
		b.thought.Text = b.text.String()
		r.thoughts = append(r.thoughts, b.thought)
	default:
		// The provider streams the arguments. A server that does not has them in the beginning of the block.
		b.call.Arguments = cmp.Or(b.text.String(), b.call.Arguments, "{}")
		b.call.Extra = encodeThoughts(r.thoughts)
		r.thoughts = nil
		r.calls = append(r.calls, *b.call)
	}
}

// updateUsage applies the usage at the end of the message, which covers the whole message. Missing numbers have
// not changed since the beginning.
func (r *reply) updateUsage(u sdk.MessageDeltaUsage) {
	r.used.OutputTokens = u.OutputTokens
	if u.JSON.InputTokens.Valid() {
		r.used.InputTokens = u.InputTokens
	}
	if u.JSON.CacheReadInputTokens.Valid() {
		r.used.CacheReadInputTokens = u.CacheReadInputTokens
	}
	if u.JSON.CacheCreationInputTokens.Valid() {
		r.used.CacheCreationInputTokens = u.CacheCreationInputTokens
	}
}

// usage returns the usage of the message. The provider does not include cached tokens in its number of input
// tokens, so usage adds them.
func (r *reply) usage() execution.Usage {
	return execution.Usage{
		InputTokens:      r.used.InputTokens + r.used.CacheReadInputTokens + r.used.CacheCreationInputTokens,
		OutputTokens:     r.used.OutputTokens,
		CachedTokens:     r.used.CacheReadInputTokens,
		CacheWriteTokens: r.used.CacheCreationInputTokens,
	}
}
