// Package finish completes tool calls. It records how a call ended in the journal, emits it to the client, adds
// the result to the conversation and runs the handlers.
package finish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/errortype"
	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Finisher completes the tool calls of one run, in the order in which the model made them: it records, emits and appends
// their results, and counts the failures.
type Finisher struct {
	Control *hook.Control
	Log     *journal.Log
	Guard   tool.Guard

	failuresInARow int    // tool failures in a row
	firstQuestion  string // first question of a tool to the user
}

// FailuresInARow returns how many tool calls have failed in a row.
func (f *Finisher) FailuresInARow() int { return f.failuresInARow }

// FirstQuestion returns the first question that a tool asks the user ("" if there is none).
func (f *Finisher) FirstQuestion() string { return f.firstQuestion }

// Finish records and emits the end of a call, adds its result to the conversation, and runs the handlers that
// follow the call (CO-32).
func (f *Finisher) Finish(ctx context.Context, c *toolcall.Call) error {
	if c.FatalErr != nil {
		return c.FatalErr
	}
	if err := f.applyEffects(ctx, c); err != nil {
		return err
	}
	if err := f.recordEnd(c, func() (r statechange.Recorded) {
		r.SetValues, r.Removed, r.Bases = f.Control.TakeUnjournaled()
		return r
	}); err != nil {
		return err
	}
	if err := f.emitEnd(c); err != nil {
		return err
	}
	f.Control.Conversation.Append(conversation.Message{
		Role: conversation.RoleTool, Text: c.HookCall.Text, ToolCallID: c.Requested.ID, Untrusted: f.untrustedSource(c),
		Attachments: c.Output.Attachments,
	})
	err := stop.IgnoreErrStopped(f.runAfterHandlers(ctx, c))
	f.Control.Conversation.SetLastText(toolcall.CutText(c.HookCall.Text, toolcall.MaxTextBytes))
	return cmp.Or(err, f.Control.EmitLast())
}

// FinishDeferred records and emits the end of a call while an earlier call of its round still waits. The call will
// not be made again. The turn that continues adds its result to the conversation and runs its handlers, once the
// waiting call has an answer.
func (f *Finisher) FinishDeferred(c *toolcall.Call) error {
	if c.FatalErr != nil {
		return c.FatalErr
	}
	changes := func() (r statechange.Recorded) {
		if !c.HasFailed() {
			r.SetValues, r.Removed, r.Bases = f.Control.ChangesOf(c.Memory)
			c.Effects.ToolOnly = len(r.SetValues)+len(r.Removed) > 0
		}
		return r
	}
	if err := f.recordEnd(c, changes); err != nil {
		return err
	}
	return f.emitEnd(c)
}

// Skip adds a result for a call that does not run because the turn was stopped.
func (f *Finisher) Skip(asked conversation.ToolCall) error {
	f.Control.Conversation.Append(conversation.Message{Role: conversation.RoleTool, Text: toolcall.NotRun, ToolCallID: asked.ID})
	return f.Control.EmitLast()
}

// Abandon adds a result for a call that waits in a stopped turn. If its inner calls wait, the call has already
// started, so Abandon emits its end too.
func (f *Finisher) Abandon(ctx context.Context, c *toolcall.Call) error {
	if c.Nested == nil || len(c.Nested.Pending) == 0 {
		return f.Skip(c.Requested)
	}
	c.HookCall.Status, c.HookCall.Text = event.ToolInterrupted, toolcall.Interrupted
	return f.Finish(ctx, c)
}

// applyEffects applies the effects of a tool to the turn, even if an earlier attempt ran the tool.
func (f *Finisher) applyEffects(ctx context.Context, c *toolcall.Call) error {
	var lost []string
	if !c.HasFailed() && c.HookCall.Status != event.ToolInterrupted {
		lost = f.Control.Absorb(c.Memory)
	}
	f.Control.Reapply(c.Effects.SetValues, c.Effects.Removed, c.Effects.Bases, !c.Effects.ToolOnly)
	if c.Effects.Escalate {
		f.Control.Turn().Escalate()
	}
	if c.Nested != nil && c.Nested.Stopped != "" {
		toolcall.StopTurn(ctx, f.Control.Turn(), c.Nested.Stopped)
	}
	if len(lost) == 0 {
		return nil
	}
	return f.Control.Events.Emit(event.Warning{Reason: statechange.ReasonOverwritten, Message: fmt.Sprintf(
		"the tool %s and another one that ran at the same time have both set %s; the value of %s is kept", c.Requested.Name,
		strings.Join(lost, ", "), c.Requested.Name)})
}

// recordEnd writes the end of a call and its state changes to the journal, unless the journal already contains
// them.
func (f *Finisher) recordEnd(c *toolcall.Call, changes func() statechange.Recorded) error {
	h := c.HookCall
	text := toolcall.CutText(h.Text, toolcall.MaxTextBytes)
	if f.Log.HasJournal() && c.JournalEntry.Phase == execution.Done && (h.Status != event.ToolInterrupted || c.Answer.Decided) {
		c.JournalEntry.Status, c.JournalEntry.Text, c.JournalEntry.Mode = string(h.Status), text, modeFromError(h.Err)
		if err := f.addEffects(c, changes()); err != nil {
			return err
		}
		f.Log.Record(c.JournalEntry)
	}
	h.Text = text
	return nil
}

// addEffects adds the effects of a tool and the names of its files to the journal entry of its call. It stores them in
// the entry's reply field, which tool calls do not use otherwise.
func (f *Finisher) addEffects(c *toolcall.Call, changes statechange.Recorded) error {
	effects := toolcall.Effects{Recorded: changes, ToolOnly: c.Effects.ToolOnly, Escalate: f.Control.Progress.Escalated(), Untrusted: c.UntrustedSource()}
	if c.Nested != nil {
		effects.LastCallNumber, effects.Stopped, c.JournalEntry.Usage = c.Nested.LastCallNumber, c.Nested.Stopped, c.Nested.Usage
	}
	text, err := json.Marshal(effects)
	if string(text) == "{}" {
		text = nil
	}
	if err != nil || len(text)+len(c.Output.Attachments) == 0 {
		return err
	}
	if len(text) > conversation.MaxMessageBytes {
		return failure.Newf(failure.ResourceQuota, "loop.Run",
			"tool %s changed %d bytes of state in one call, and the journal takes %d; store more as an artifact",
			c.Requested.Name, len(text), conversation.MaxMessageBytes)
	}
	reply := conversation.Message{Role: conversation.RoleTool, Text: string(text), Attachments: c.Output.Attachments}
	c.JournalEntry.Reply, c.JournalEntry.SideCall = reply.WithoutData(), true
	return nil
}

// emitEnd emits how a call ended, and completes the text that the model will read.
func (f *Finisher) emitEnd(c *toolcall.Call) error {
	h := c.HookCall
	finished := event.ToolFinished{
		CallID: c.Requested.ID, Tool: c.Requested.Name, Arguments: h.Arguments, Iteration: f.Control.Turn().Iteration(), Status: h.Status, Result: h.Text,
		Duration: h.Duration, Replayed: c.State == toolcall.Replayed,
		Attachments: conversation.AttachmentsWithoutData(c.Output.Attachments), Structured: c.Output.Structured,
	}
	if c.HasFailed() && h.Err == nil { // the tool does not exist, a handler rejected the call, or it failed in an earlier attempt
		text := strings.TrimPrefix(h.Text, toolcall.FailedPrefix)
		h.Err = errors.New(text)
		if c.JournalEntry.Mode != "" {
			h.Err = failure.New(failure.Mode(c.JournalEntry.Mode), "loop.Run", text)
		}
	}
	finished.ErrorType = errortype.Of(h.Err)
	if h.Status == event.ToolAsked {
		f.firstQuestion = cmp.Or(f.firstQuestion, h.Text)
		h.Text = "The user was asked: " + h.Text
	}
	if len(c.Output.Attachments) > 0 {
		h.Text = cmp.Or(h.Text, toolcall.OnlyFiles)
	}
	h.Text = cmp.Or(h.Text, toolcall.NoOutput)
	finished.Summary = conversation.Excerpt(h.Text, event.MaxSummaryChars)
	f.Control.Progress.AddTool(c.Requested.Name)
	return f.Control.Events.Emit(finished)
}

// runAfterHandlers runs the handlers that follow a call, and counts the failures in a row. It does not count a
// failure of an earlier attempt, because that failure may be the reason for this attempt.
func (f *Finisher) runAfterHandlers(ctx context.Context, c *toolcall.Call) error {
	switch {
	case c.HasFailed():
		if !c.HookCall.Replayed {
			f.failuresInARow++
		}
		if err := f.Control.Handlers.OnError(ctx, c.HookCall); err != nil {
			return err
		}
	case c.HookCall.Status == event.ToolSuccess:
		f.failuresInARow = 0
	}
	return f.Control.Handlers.AfterEachTool(ctx, c.HookCall)
}

// untrustedSource returns the untrusted source of a call's result (empty if the result came from the user or the
// author).
func (f *Finisher) untrustedSource(c *toolcall.Call) string {
	quoted := c.UntrustedSource()
	if quoted == "" && c.Tool != nil && guard.ToolScope(f.Guard, c.Tool).Untrusted {
		return conversation.SourceName("tool", c.Requested.Name)
	}
	return quoted
}

// modeFromError returns the failure mode of an error, or "".
func modeFromError(err error) string {
	if err == nil {
		return ""
	}
	return string(failure.ModeOf(err))
}
