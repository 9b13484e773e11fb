// Package finish reports how a tool call ended: to the journal, to the client, to the model and to handlers.
package finish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Finisher finishes the tool calls of one run, in their order.
type Finisher struct {
	Control *hook.Control
	Log     *journal.Log
	Guard   tool.Guard

	failures int    // of tools in a row
	question string // the first that a tool asks the user
}

// Failures returns how many tools failed in a row.
func (f *Finisher) Failures() int { return f.failures }

// Question returns the first question of a tool to the user, or "".
func (f *Finisher) Question() string { return f.question }

// Finish records and emits the end of a call, adds its result to the conversation, and runs the handlers after it
// (CO-32).
func (f *Finisher) Finish(ctx context.Context, c *toolcall.Call) error {
	if c.Fatal != nil {
		return c.Fatal
	}
	f.applyEffects(ctx, c)
	if err := f.record(c, f.Control.TakeUnjournaled); err != nil {
		return err
	}
	if err := f.report(c); err != nil {
		return err
	}
	f.Control.Conversation.Append(conversation.Message{
		Role: conversation.RoleTool, Text: c.Hook.Text, ToolCallID: c.Asked.ID, Untrusted: f.source(c),
	})
	err := stop.WithoutStop(f.runHandlers(ctx, c))
	f.Control.Conversation.SetLastText(toolcall.Cut(c.Hook.Text, toolcall.MaxText))
	return cmp.Or(err, f.Control.EmitLast())
}

// FinishPartly finishes a call that ended although an earlier call of its round waits. It is not made again. The
// turn that continues adds its result to the conversation and runs the handlers after it, once the waiting call
// has its answer.
func (f *Finisher) FinishPartly(c *toolcall.Call) error {
	if c.Fatal != nil {
		return c.Fatal
	}
	changes := func() (set map[string]json.RawMessage, removed []string) {
		if c.Failed() {
			return nil, nil
		}
		return f.Control.ChangesOf(c.Memory)
	}
	if err := f.record(c, changes); err != nil {
		return err
	}
	return f.report(c)
}

// Skip answers a call that does not run because the turn is stopped.
func (f *Finisher) Skip(asked conversation.ToolCall) error {
	f.Control.Conversation.Append(conversation.Message{Role: conversation.RoleTool, Text: toolcall.NotRun, ToolCallID: asked.ID})
	return f.Control.EmitLast()
}

// Abandon answers a call that waits in a turn that is stopped. If it is a nested call whose inner calls wait, it
// has begun, so its end is emitted too.
func (f *Finisher) Abandon(ctx context.Context, c *toolcall.Call) error {
	if c.Nested == nil || len(c.Nested.Pending) == 0 {
		return f.Skip(c.Asked)
	}
	c.Hook.Status, c.Hook.Text = event.ToolInterrupted, toolcall.Interrupted
	return f.Finish(ctx, c)
}

// applyEffects applies the effects of a tool on the turn, even if an earlier attempt ran the tool.
func (f *Finisher) applyEffects(ctx context.Context, c *toolcall.Call) {
	if !c.Failed() && c.Hook.Status != event.ToolInterrupted {
		f.Control.Absorb(c.Memory)
	}
	f.Control.Reapply(c.Effects.Set, c.Effects.Removed)
	if c.Effects.Escalate {
		f.Control.Turn().Escalate()
	}
	if c.Nested != nil && c.Nested.Stopped != "" {
		toolcall.StopTurn(ctx, f.Control.Turn(), c.Nested.Stopped)
	}
}

// record writes the end of a call, with its changes of state, to the journal unless it is there already.
func (f *Finisher) record(c *toolcall.Call, changes func() (set map[string]json.RawMessage, removed []string)) error {
	h := c.Hook
	text := toolcall.Cut(h.Text, toolcall.MaxText)
	if f.Log.IsKept() && c.Entry.Phase == execution.Done && (h.Status != event.ToolInterrupted || c.Answer.Decided) {
		c.Entry.Status, c.Entry.Text, c.Entry.Mode = string(h.Status), text, modeOf(h.Err)
		set, removed := changes()
		if err := f.addEffects(c, set, removed); err != nil {
			return err
		}
		f.Log.Record(c.Entry)
	}
	h.Text = text
	return nil
}

// addEffects adds the effects of a tool to the journal entry of its call. The effects use the field for a reply,
// because the entry is outside of the conversation.
func (f *Finisher) addEffects(c *toolcall.Call, set map[string]json.RawMessage, removed []string) error {
	effects := toolcall.Effects{Set: set, Removed: removed, Escalate: f.Control.Progress.Escalated(), Untrusted: c.Quoted()}
	if c.Nested != nil {
		effects.Last, effects.Stopped, c.Entry.Usage = c.Nested.Last, c.Nested.Stopped, c.Nested.Usage
	}
	text, err := json.Marshal(effects)
	if err != nil || string(text) == "{}" {
		return err
	}
	if len(text) > conversation.MaxMessageBytes {
		return failure.Newf(failure.ResourceQuota, "loop.Run",
			"tool %s changed %d bytes of state in one call, and the journal takes %d; store more as an artifact",
			c.Asked.Name, len(text), conversation.MaxMessageBytes)
	}
	c.Entry.Reply, c.Entry.SideCall = conversation.Message{Role: conversation.RoleTool, Text: string(text)}, true
	return nil
}

// report emits how a call ended, and completes the text that the model reads.
func (f *Finisher) report(c *toolcall.Call) error {
	h := c.Hook
	finished := event.ToolFinished{
		CallID: c.Asked.ID, Tool: c.Asked.Name, Arguments: h.Arguments, Iteration: f.Control.Turn().Iteration(), Status: h.Status, Result: h.Text,
		Duration: h.Duration, Replayed: c.State == toolcall.Replayed,
	}
	if c.Failed() && h.Err == nil { // there is no such tool, a handler refused it, or it failed in an earlier attempt
		text := strings.TrimPrefix(h.Text, toolcall.FailedPrefix)
		h.Err = errors.New(text)
		if c.Entry.Mode != "" {
			h.Err = failure.New(failure.Mode(c.Entry.Mode), "loop.Run", text)
		}
	}
	finished.ErrorType = modeOf(h.Err)
	if h.Status == event.ToolAsked {
		f.question = cmp.Or(f.question, h.Text)
		h.Text = "The user was asked: " + h.Text
	}
	h.Text = cmp.Or(h.Text, toolcall.NoOutput)
	finished.Summary = conversation.Brief(h.Text, event.MaxSummary)
	f.Control.Progress.ToolRan(c.Asked.Name)
	return f.Control.Events.Emit(finished)
}

// runHandlers runs the handlers after a call. A failure in an earlier attempt does not count again, because it
// was the reason for this attempt.
func (f *Finisher) runHandlers(ctx context.Context, c *toolcall.Call) error {
	switch {
	case c.Failed():
		if !c.Hook.Replayed {
			f.failures++
		}
		if err := f.Control.Handlers.OnError(ctx, c.Hook); err != nil {
			return err
		}
	case c.Hook.Status == event.ToolSuccess:
		f.failures = 0
	}
	return f.Control.Handlers.AfterEachTool(ctx, c.Hook)
}

// source returns the untrusted source of a call's result (empty if it came from the user or the author).
func (f *Finisher) source(c *toolcall.Call) string {
	quoted := c.Quoted()
	if quoted == "" && c.Tool != nil && guard.Scope(f.Guard, c.Tool).Untrusted {
		return conversation.SourceName("tool", c.Asked.Name)
	}
	return quoted
}

// modeOf returns the mode of a failure, or "".
func modeOf(err error) string {
	if err == nil {
		return ""
	}
	return string(failure.ModeOf(err))
}
