// Package execute runs a prepared tool call, or restores its result from the journal.
package execute

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Executor executes the tool calls of one run.
type Executor struct {
	Control      *hook.Control
	Log          *journal.Log
	Stop         *stop.Signal
	Budget       *budget.Ledger
	AllowedTools *tool.Set // tools that the run may use
	AllTools     *tool.Set // all tools of the agent
}

// RestoreFromJournal restores the result of a call from the journal, if the journal contains one. Before a call
// runs, it makes sure that the journal contains what a successor needs to continue.
func (e *Executor) RestoreFromJournal(ctx context.Context, c *toolcall.Call) error {
	turn := e.Control.Turn()
	c.Memory = turn.Memory().Fork(turn.Info().Agent)
	if c.State == toolcall.Answered {
		return nil
	}
	recorded, found, err := e.Log.ToolResult(c.JournalEntry)
	if err != nil {
		return err
	}
	if sealed := e.Log.SealedJournal(); sealed != nil {
		return e.restoreInReplay(ctx, sealed, c, recorded, found)
	}
	switch {
	case c.State == toolcall.Waiting:
	case found:
		c.RestoreFrom(recorded)
		return loadFiles(ctx, c)
	case c.IsInDoubt(e.Log):
		markInDoubt(c)
	default:
		return e.Log.RecordIntent(ctx, c.JournalEntry, c.Nested != nil)
	}
	return nil
}

// restoreInReplay is RestoreFromJournal for a replay, in which running a recorded tool again is an error. Only
// nested calls and calls of tools that do not exist run again, because they have no effect of their own.
func (e *Executor) restoreInReplay(ctx context.Context, sealed stepjournal.SealedJournal, c *toolcall.Call, recorded execution.Entry, found bool) error {
	if found {
		sealed.AddRepeatedCall(c.JournalEntry.Number, c.JournalEntry.Digest)
		if event.ToolStatus(recorded.Status) == event.ToolNotFound && c.Tool != nil {
			return sealed.AddUnexpectedCall(c.JournalEntry)
		}
	}
	switch {
	case c.State == toolcall.Waiting:
	case c.Nested != nil || c.Tool == nil:
		if found && c.Nested != nil {
			c.Nested.Recorded = &recorded
		}
	case found:
		c.RestoreFrom(recorded)
		return loadFiles(ctx, c)
	case c.IsInDoubt(e.Log):
		markInDoubt(c)
	default:
		return sealed.AddUnexpectedCall(c.JournalEntry)
	}
	return nil
}

// markInDoubt marks a call that was running when its worker was lost. The model gets a text that says the outcome
// is unknown.
func markInDoubt(c *toolcall.Call) {
	c.State, c.JournalEntry.Phase = toolcall.InDoubt, execution.Done
	c.HookCall.Status, c.HookCall.Text = event.ToolUnknownOutcome, fmt.Sprintf(
		"%s: it is not known whether %s did its work before its worker was lost. "+
			"It was not run again, because it may run only once. Find out in another way, or ask the user.",
		failure.UnknownOutcome.Reason(), c.HookCall.Name)
}
