// Package turnstate holds the state of a running turn: its conversation, its events and its progress. The loop
// changes it, and handlers see it through hook.Turn.
package turnstate

import (
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Conversation is the list of messages that the model of a turn sees. It keeps tool calls and their results
// together: messages that a handler adds during a tool round are held back until the round is closed (C-11,
// CO-33).
type Conversation struct {
	messages    []conversation.Message
	isHolding   bool                    // whether added messages are held back
	held        []conversation.Message  // messages held back until the round is closed
	openRound   []conversation.ToolCall // calls of the open tool round (none between rounds)
	pendingCall *conversation.ToolCall  // the call whose BeforeEachTool handlers run (nil otherwise)
	sources     readSources
}

// NewConversation returns a conversation that begins with a copy of messages, oldest first.
func NewConversation(messages []conversation.Message) *Conversation {
	return &Conversation{messages: append(make([]conversation.Message, 0, len(messages)+4), messages...)}
}

// Messages returns the messages for the next model call, oldest first. The caller must not change them.
func (c *Conversation) Messages() []conversation.Message { return slices.Clip(c.messages) }

// Append adds a message from the model or a tool.
func (c *Conversation) Append(m conversation.Message) {
	c.messages = append(c.messages, m)
	if len(m.Attachments) > 0 {
		c.limitFiles()
	}
}

// LastMessage returns the last message. The conversation must not be empty.
func (c *Conversation) LastMessage() conversation.Message { return c.messages[len(c.messages)-1] }

// SetLastText changes the text of the last message. The conversation must not be empty.
func (c *Conversation) SetLastText(text string) { c.messages[len(c.messages)-1].Text = text }

// Add adds messages from a handler: at once, or during a tool round when the round is closed.
func (c *Conversation) Add(messages ...conversation.Message) {
	if c.isHolding {
		c.held = append(c.held, messages...)
		return
	}
	c.messages = append(c.messages, messages...)
}

// Replace replaces all messages. It fails with mode agent_logic during a tool round, and if the new messages would
// separate tool calls from their results.
func (c *Conversation) Replace(messages []conversation.Message) error {
	if len(c.openRound) > 0 {
		return failure.New(failure.AgentLogic, "hook.Replace", "messages cannot be replaced in a tool round; do it in BeforeLLM or AfterTools")
	}
	if err := conversation.CheckRounds(messages); err != nil {
		return failure.New(failure.AgentLogic, "hook.Replace", err.Error())
	}
	c.messages = slices.Clone(messages)
	return nil
}

// HoldMessages holds back messages that handlers add, until CloseRound.
func (c *Conversation) HoldMessages() { c.isHolding = true }

// OpenRound begins the tool round of the given calls.
func (c *Conversation) OpenRound(calls []conversation.ToolCall) {
	c.openRound, c.isHolding = calls, true
}

// CloseRound ends the tool round once every call has its result. It then appends the messages that were held back.
func (c *Conversation) CloseRound() {
	c.openRound, c.isHolding = nil, false
	c.messages = append(c.messages, c.held...)
	c.held = nil
}

// OpenCalls returns all calls of the open tool round, including those that have already run.
func (c *Conversation) OpenCalls() []conversation.ToolCall { return slices.Clip(c.openRound) }

// SetPendingCall sets the call that is about to run (nil if there is none).
func (c *Conversation) SetPendingCall(call *conversation.ToolCall) { c.pendingCall = call }

// PendingCall returns the call that is about to run, or nil.
func (c *Conversation) PendingCall() *conversation.ToolCall { return c.pendingCall }
