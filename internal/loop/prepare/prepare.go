// Package prepare decides whether a tool call of a round runs, waits, or already has a result.
package prepare

import (
	"context"
	"strings"

	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Preparer decides about the tool calls of one run.
type Preparer struct {
	Control *hook.Control
	Log     *journal.Log
	Stop    *stop.Signal
	Tools   *tool.Set // tools that the run may use
	Guard   tool.Guard

	CanWait bool                       // whether calls may wait, which requires a turn and a journal
	Agent   string                     // agent of the step, which receives the answers
	Answers []execution.Answer         // answers that came with the turn
	Broker  execution.CredentialBroker // requests credentials that tools lack (nil fails such a tool)

	Key      func(number int) string // idempotency key of a call (nil for none)
	ID       func(number int) string // id under which a call is answered
	Recorded bool                    // record the arguments of tools
}

// Prepare numbers a call, runs the handlers before it, and decides what happens to it. It returns nil if the turn
// was stopped meanwhile. An error of a handler fails only this call (CO-36, CO-39a).
func (p *Preparer) Prepare(ctx context.Context, asked conversation.ToolCall) (*toolcall.Call, error) {
	if strings.TrimSpace(asked.Arguments) == "" {
		asked.Arguments = "{}"
	}
	c := toolcall.New(p.Control.Turn(), asked, p.Log.NextNumber())
	if p.Key != nil {
		c.Key = p.Key(c.Entry.Number)
	}
	c.Tool, _ = p.Tools.Find(asked.Name)
	_, c.Hook.Replayed = p.Log.Find(c.Entry.Number, execution.Done)
	if c.Tool != nil {
		if err := p.decide(ctx, c); err != nil {
			return nil, err
		}
		if c.State != toolcall.Answered && p.Stop.Finishing() {
			return nil, nil
		}
	}
	c.Entry.Digest = stepjournal.CallDigest(asked.Name, c.Hook.Arguments)
	if p.Recorded {
		c.Entry.Arguments = c.Hook.Arguments
	}
	p.recordApproval(c)
	return c, nil
}

// decideCall decides whether a call of an existing tool runs, waits, or already has a result. The order of the
// checks matters. An answer is compared with the arguments after handlers have changed them, and a credential is
// requested only for a call that would run.
func (p *Preparer) decide(ctx context.Context, c *toolcall.Call) error {
	p.describe(c)
	p.findAnswer(c)
	ctx = c.WithHolder(ctx)
	p.openCredential(ctx, c)
	c.Hook.Untrusted = guard.Source(p.Guard, c.Tool, c.Hook, p.Control.Conversation.UntrustedFor)
	if err := p.runHandlers(ctx, c); err != nil {
		return err
	}
	if err := p.applyGuard(c); err != nil {
		return err
	}
	if err := p.applyAnswer(c); err != nil {
		return err
	}
	if a := c.Answer; a.Verdict == execution.Stop && !a.Late && !a.Decided {
		toolcall.StopTurn(ctx, p.Control.Turn(), p.Control.Progress.StopReason())
	}
	p.requireLogin(ctx, c)
	if err := p.suspend(c); err != nil {
		return err
	}
	switch {
	case len(c.Pending) > 0:
		c.State = toolcall.Waiting
	case c.Hook.Status != "":
		c.State = toolcall.Answered
	}
	return nil
}

// setToolProperties copies the properties of the tool, such as its effect, to the call.
func (p *Preparer) describe(c *toolcall.Call) {
	c.Hook.Description, c.Hook.Effect = c.Tool.Spec().Description, tool.EffectOf(c.Tool)
	c.Entry.Effect, c.ID = c.Hook.Effect, p.ID(c.Entry.Number)
	if _, ok := c.Tool.(nested.Tool); ok {
		c.Nested = &nested.Call{Lanes: 1}
	}
	_, c.Hook.AtClient = tool.AtClient(c.Tool)
	c.Hook.Replayed = c.Hook.Replayed || c.IsInDoubt(p.Log)
}

// runBeforeHandlers runs the handlers of BeforeEachTool for the call.
func (p *Preparer) runHandlers(ctx context.Context, c *toolcall.Call) error {
	asked := c.Asked
	p.Control.Conversation.SetPending(&asked)
	err := p.Stop.RunHandlers(ctx, func(ctx context.Context) error { return p.Control.Handlers.BeforeEachTool(ctx, c.Hook) })
	p.Control.Conversation.SetPending(nil)
	if stop.WithoutStop(err) != nil {
		c.Hook.Refuse(toolcall.FailedPrefix + failure.Plain(err))
		c.Hook.Err = err
	}
	return p.Control.Events.Err()
}

// applyGuard applies the decision of the guard to the call.
func (p *Preparer) applyGuard(c *toolcall.Call) error {
	if p.Stop.Finishing() {
		return nil
	}
	warning, rejection := guard.Check(p.Guard, p.Control.Turn().Info().Agent, c.Hook)
	if rejection != nil {
		c.Refuse(rejection)
	}
	if warning != nil {
		return p.Control.Events.Emit(*warning)
	}
	return nil
}

// recordApproval records that a call that spans turns was approved, because later turns do not receive the answer
// again.
func (p *Preparer) recordApproval(c *toolcall.Call) {
	if c.SpansTurns() && c.Answer.Verdict == execution.Approve && c.State != toolcall.Answered {
		note := c.Entry
		note.Phase = execution.Intent
		p.Log.Record(note)
	}
}

// emitWarning emits a warning about a call.
func (p *Preparer) warn(reason, message string) error {
	return p.Control.Events.Emit(event.Warning{Reason: reason, Message: message})
}
