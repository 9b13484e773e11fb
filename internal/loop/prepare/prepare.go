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

	IdempotencyKey  func(number int) string // idempotency key of a call (nil for none)
	CallID          func(number int) string // id under which a call is answered
	RecordForReplay bool                    // record the arguments of tools
}

// Prepare numbers a call, runs the handlers before it, and decides what happens to it. It returns nil if the turn
// was stopped meanwhile. An error of a handler fails only this call (CO-36, CO-39a).
func (p *Preparer) Prepare(ctx context.Context, asked conversation.ToolCall) (*toolcall.Call, error) {
	if strings.TrimSpace(asked.Arguments) == "" {
		asked.Arguments = "{}"
	}
	c := toolcall.New(p.Control.Turn(), asked, p.Log.NextNumber())
	if p.IdempotencyKey != nil {
		c.IdempotencyKey = p.IdempotencyKey(c.JournalEntry.Number)
	}
	c.Tool, _ = p.Tools.Find(asked.Name)
	_, c.HookCall.Replayed = p.Log.FindEntry(c.JournalEntry.Number, execution.Done)
	if c.Tool != nil {
		if err := p.decideCall(ctx, c); err != nil {
			return nil, err
		}
		if c.State != toolcall.Answered && p.Stop.IsFinishing() {
			return nil, nil
		}
	}
	c.JournalEntry.Digest = stepjournal.CallDigest(asked.Name, c.HookCall.Arguments)
	if p.RecordForReplay {
		c.JournalEntry.Arguments = c.HookCall.Arguments
	}
	p.recordApproval(c)
	return c, nil
}

// decideCall decides whether a call of an existing tool runs, waits, or already has a result. The order of the
// checks matters. An answer is compared with the arguments after handlers have changed them, and a credential is
// requested only for a call that would run.
func (p *Preparer) decideCall(ctx context.Context, c *toolcall.Call) error {
	p.setToolProperties(c)
	p.findAnswer(c)
	ctx = c.ContextWithHolder(ctx)
	p.openCredential(ctx, c)
	c.HookCall.Untrusted = guard.GuardingSource(p.Guard, c.Tool, c.HookCall, p.Control.Conversation.UntrustedSourceFor)
	if err := p.runBeforeHandlers(ctx, c); err != nil {
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
	case c.HookCall.Status != "":
		c.State = toolcall.Answered
	}
	return nil
}

// setToolProperties copies the properties of the tool, such as its effect, to the call.
func (p *Preparer) setToolProperties(c *toolcall.Call) {
	c.HookCall.Description, c.HookCall.Effect = c.Tool.Spec().Description, tool.EffectOf(c.Tool)
	c.JournalEntry.Effect, c.ID = c.HookCall.Effect, p.CallID(c.JournalEntry.Number)
	if _, ok := c.Tool.(nested.Tool); ok {
		c.Nested = &nested.Call{Lanes: 1}
	}
	_, c.HookCall.AtClient = tool.AtClient(c.Tool)
	c.HookCall.Replayed = c.HookCall.Replayed || c.IsInDoubt(p.Log)
}

// runBeforeHandlers runs the handlers of BeforeEachTool for the call.
func (p *Preparer) runBeforeHandlers(ctx context.Context, c *toolcall.Call) error {
	asked := c.Requested
	p.Control.Conversation.SetPendingCall(&asked)
	err := p.Stop.RunHandlers(ctx, func(ctx context.Context) error { return p.Control.Handlers.BeforeEachTool(ctx, c.HookCall) })
	p.Control.Conversation.SetPendingCall(nil)
	if stop.IgnoreErrStopped(err) != nil {
		c.HookCall.Reject(toolcall.FailedPrefix + failure.PlainMessage(err))
		c.HookCall.Err = err
	}
	return p.Control.Events.Err()
}

// applyGuard applies the decision of the guard to the call.
func (p *Preparer) applyGuard(c *toolcall.Call) error {
	if p.Stop.IsFinishing() {
		return nil
	}
	warning, rejection := guard.CheckCall(p.Guard, p.Control.Turn().Info().Agent, c.HookCall)
	if rejection != nil {
		c.Reject(rejection)
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
		note := c.JournalEntry
		note.Phase = execution.Intent
		p.Log.Record(note)
	}
}

// emitWarning emits a warning about a call.
func (p *Preparer) emitWarning(reason, message string) error {
	return p.Control.Events.Emit(event.Warning{Reason: reason, Message: message})
}
