// Package toolround runs the tool calls of one model reply.
package toolround

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/loop/budgetcheck"
	"github.com/troupe-dev/troupe/internal/loop/execute"
	"github.com/troupe-dev/troupe/internal/loop/finish"
	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/prepare"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/internal/loop/toolprogress"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// Runner runs the tool rounds of one run of the loop.
type Runner struct {
	Control *hook.Control
	Log     *journal.Log
	Stop    *stop.Signal
	Budget  *budget.Ledger // checked before tools run (nil for no limit)

	Preparer *prepare.Preparer
	Executor *execute.Executor
	Finisher *finish.Finisher

	Concurrent  bool
	MaxFailures int // tool failures in a row that end the run
}

// Outcome says how a round ended: which calls wait, and what a tool asks the user.
type Outcome struct {
	Pending  []execution.Pending // waiting calls; the round is incomplete if there are any
	Question string              // question of a tool to the user (empty for none)
}

// Run runs a round with its handlers. Afterwards every call has one result, unless calls wait. In that case the
// turn ends in the middle of the round.
func (r *Runner) Run(ctx context.Context, calls []conversation.ToolCall) (Outcome, error) {
	round := &hook.Round{Turn: r.Control.Turn(), Calls: slices.Clone(calls)} // a copy, so that a handler cannot change the calls
	r.Control.Conversation.OpenRound(calls)
	if err := stop.IgnoreErrStopped(r.Control.Handlers.BeforeTools(ctx, round)); err != nil {
		return Outcome{}, err
	}
	runCalls := r.runInOrder
	if r.Concurrent && len(calls) > 1 {
		runCalls = r.runConcurrently
	}
	pending, err := runCalls(ctx, calls)
	if err != nil {
		return Outcome{}, err
	}
	if len(pending) > 0 {
		return Outcome{Pending: pending}, r.suspendTurn(ctx, pending)
	}
	return Outcome{Question: r.Finisher.FirstQuestion()}, r.closeRound(ctx, round)
}

// closeRound ends a round in which every call has a result.
func (r *Runner) closeRound(ctx context.Context, round *hook.Round) error {
	r.Control.Conversation.CloseRound()
	if !r.Stop.IsRequested() {
		if err := stop.IgnoreErrStopped(r.Control.Handlers.AfterTools(ctx, round)); err != nil {
			return err
		}
	}
	if err := r.Control.EmitChanges(""); err != nil {
		return err
	}
	if n := r.Finisher.FailuresInARow(); n >= r.MaxFailures {
		return failure.Newf(failure.ResourceTool, "loop.Run",
			"%d tool calls in a row failed; look at their results, and try again when the tools work", n).
			With("reason", "consecutive-tool-failures")
	}
	if ctx.Err() != nil {
		return stop.NewContextError(ctx)
	}
	return nil
}

// suspendTurn makes all work of this turn durable for the turn that continues, and emits the waiting calls.
func (r *Runner) suspendTurn(ctx context.Context, pending []execution.Pending) error {
	if len(pending) > execution.MaxPending {
		return pendingcall.NewTooManyError(len(pending))
	}
	if err := r.Log.Sync(ctx); err != nil {
		return err
	}
	for _, p := range pending {
		if err := r.Control.Events.Emit(event.ToolPending{Pending: p}); err != nil {
			return err
		}
	}
	return nil
}

// reserveBudget reserves budget for all calls that are about to run, before any of them runs or is recorded in the
// journal. An exceeded budget therefore leaves no round partly done. A call that already has a result costs
// nothing. The reserved calls count as used even if they fail, because a failed tool may have had an effect. calls
// may contain nil.
func (r *Runner) reserveBudget(calls ...*toolcall.Call) error {
	if r.Budget == nil {
		return nil
	}
	amounts := budget.Amounts{}
	for _, c := range calls {
		if c != nil && r.isNew(c) {
			amounts.ToolCalls++
		}
	}
	if amounts.ToolCalls == 0 {
		return nil
	}
	reserved, err := budgetcheck.Reserve(r.Budget, r.Control.Events, amounts)
	if err == nil {
		reserved.Settle(amounts)
	}
	return err
}

// isNew reports whether a call is about to run and has not run in an earlier attempt.
func (r *Runner) isNew(c *toolcall.Call) bool {
	_, found := r.Log.FindEntry(c.JournalEntry.Number, execution.Done)
	return c.State == toolcall.Ready && !c.IsInDoubt(r.Log) && !found
}

// emitStart emits ToolStarted for a call. It does nothing for a call that waits, or whose result is from the journal.
func (r *Runner) emitStart(c *toolcall.Call) error {
	if c.State == toolcall.Replayed || c.State == toolcall.Waiting {
		return nil
	}
	return r.Control.Events.Emit(event.ToolStarted{CallID: c.Requested.ID, Tool: c.Requested.Name, Arguments: c.HookCall.Arguments})
}

// executeAll runs calls concurrently and meanwhile emits the reports of their tools. It skips nil calls.
func (r *Runner) executeAll(ctx context.Context, calls ...*toolcall.Call) {
	var tasks []toolprogress.Task
	for _, c := range calls {
		if c != nil {
			run := func(ctx context.Context) { r.Executor.Run(ctx, c) }
			tasks = append(tasks, toolprogress.Task{CallID: c.Requested.ID, Tool: c.Requested.Name, Run: run})
		}
	}
	toolprogress.RunTasks(ctx, r.Control.Events, tasks...)
}

// pendingOrAbandon returns what a call waits for. If the turn was stopped meanwhile, it abandons the call and
// returns nothing.
func (r *Runner) pendingOrAbandon(ctx context.Context, c *toolcall.Call) ([]execution.Pending, error) {
	if r.Stop.IsFinishing() {
		return nil, r.Finisher.Abandon(ctx, c)
	}
	return c.Pending, nil
}
