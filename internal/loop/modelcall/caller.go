// Package modelcall asks the model, once in each iteration of the loop and whenever a handler requests a side
// call.
package modelcall

import (
	"context"
	"errors"

	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Caller makes the model calls of one run.
type Caller struct {
	Model   llm.Model
	Tools   *tool.Set // tools offered to the model
	System  string
	Choices []string // choices for the model, which then gets no tools (empty for none)

	Control          *hook.Control
	Log              *journal.Log
	Budget           *budget.Ledger // checked before each call (nil for no limit)
	Stop             *stop.Signal
	RecordForReplay  bool // record the final reply and digests of model requests
	RecordFinalReply bool // record the final reply, because the step continues after the run

	ids CallIDs
}

// request is a model request with the options of its call.
type request struct {
	llm.Request
	isSideCall bool // whether a handler makes the call, outside of the conversation
	holdText   bool // whether the text is held back until the AfterLLM handlers have run
}

// Ask calls the model once, runs the handlers around the call, and returns the reply as the handlers left it. The
// reply is nil if a handler ended the turn. Ask fails with stop.ErrStopped if the run was stopped.
func (c *Caller) Ask(ctx context.Context) (*hook.LLMReply, error) {
	turn := c.Control.Turn()
	asked := &hook.LLMRequest{Turn: turn, System: c.System}
	if len(c.Choices) == 0 {
		asked.Tools = c.Tools.Specs()
	}
	err := c.Stop.RunHandlers(ctx, func(ctx context.Context) error { return c.Control.Handlers.BeforeLLM(ctx, asked) })
	if err != nil || c.Control.Progress.Ended() {
		return nil, err
	}
	if c.Stop.IsRequested() {
		return nil, stop.ErrStopped
	}
	if err := conversation.CheckRounds(turn.Messages()); err != nil {
		return nil, failure.Newf(failure.AgentLogic, "loop.Run", "the messages are out of order: %s; change them with Add and Replace", err)
	}
	c.markRead()
	reply := asked.Reply
	if reply == nil {
		if reply, err = c.askModel(ctx, asked); err != nil {
			return nil, err
		}
	}
	reply.Turn = turn
	c.Control.Conversation.HoldMessages()
	if err := c.Control.Handlers.AfterLLM(ctx, reply); err != nil {
		return nil, err
	}
	reply.ToolCalls = c.ids.Assign(reply.ToolCalls, turn.Messages())
	c.ids.MarkUsed(reply.ToolCalls)
	if asked.Quiet && reply.Text != "" && !c.Control.Progress.Ended() {
		return reply, c.Control.Events.Emit(event.TextDelta{Text: reply.Text})
	}
	return reply, nil
}

// SideCall asks the model on behalf of a handler, outside of the conversation. Its text is not emitted.
func (c *Caller) SideCall(ctx context.Context, req llm.Request) (conversation.Message, error) {
	a, err := c.generate(ctx, request{Request: req, isSideCall: true})
	return a.message, err
}

// markRead records which untrusted sources the model is about to read. They are the sources of messages, and of
// tool names and descriptions that others wrote.
func (c *Caller) markRead() {
	c.Control.Conversation.AddMessageSources()
	if len(c.Choices) > 0 {
		return
	}
	for _, t := range c.Tools.Tools() {
		if scope, _ := tool.ScopeOf(t); scope.Party != "" {
			c.Control.Conversation.AddSource(scope.Party)
		}
	}
}

// askModel asks the model. If the model fails, the handlers of OnLLMError may provide a reply instead.
func (c *Caller) askModel(ctx context.Context, asked *hook.LLMRequest) (*hook.LLMReply, error) {
	turn := c.Control.Turn()
	a, err := c.generate(ctx, request{Request: llm.Request{
		System: asked.System, Messages: turn.Messages(), Tools: asked.Tools, Choices: c.Choices,
	}, holdText: asked.Quiet})
	if err == nil {
		return &hook.LLMReply{
			Turn: turn, Text: a.message.Text, ToolCalls: a.message.ToolCalls, Usage: a.usage, Replayed: a.replayed, Incomplete: a.incomplete,
		}, nil
	}
	if errors.Is(err, stop.ErrStopped) || errors.Is(err, stop.ErrConsumerGone) || ctx.Err() != nil || c.Budget.Rejection() != nil {
		return nil, err
	}
	if c.Control.Handlers.HandlesLLMError() && !a.replayed {
		c.recordFailure(a, false, err)
	}
	failed := &hook.LLMFailure{Turn: turn, Err: err}
	if err := c.Control.Handlers.OnLLMError(ctx, failed); err != nil {
		return nil, err
	}
	if failed.Reply == nil {
		return nil, err
	}
	return failed.Reply, nil
}
