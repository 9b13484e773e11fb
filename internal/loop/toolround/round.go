// Package toolround runs the tools that the model asked for in one reply.
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

// Runner runs the tool rounds of one run.
type Runner struct {
	Control *hook.Control
	Log     *journal.Log
	Stop    *stop.Signal
	Budget  *budget.Ledger // asked before tools run (nil bounds nothing)

	Prepare *prepare.Preparer
	Execute *execute.Executor
	Finish  *finish.Finisher

	Concurrent  bool
	MaxFailures int // of tools in a row
}

// Outcome is the outcome of a round.
type Outcome struct {
	Pending  []execution.Pending // calls that wait; the round is not complete while there are any
	Question string              // that a tool asks the user (empty when none does)
}

// Run runs a round, with its handlers. After it every call has one result, unless some wait: then the turn ends in the
// middle of the round.
func (r *Runner) Run(ctx context.Context, calls []conversation.ToolCall) (Outcome, error) {
	round := &hook.Round{Turn: r.Control.Turn(), Calls: slices.Clone(calls)} // a handler that changes it changes nothing
	r.Control.Conversation.OpenRound(calls)
	if err := stop.WithoutStop(r.Control.Handlers.BeforeTools(ctx, round)); err != nil {
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
		return Outcome{Pending: pending}, r.suspend(ctx, pending)
	}
	return Outcome{Question: r.Finish.Question()}, r.close(ctx, round)
}

// close ends a round in which every call has a result.
func (r *Runner) close(ctx context.Context, round *hook.Round) error {
	r.Control.Conversation.CloseRound()
	if !r.Stop.Requested() {
		if err := stop.WithoutStop(r.Control.Handlers.AfterTools(ctx, round)); err != nil {
			return err
		}
	}
	if err := r.Control.EmitChanges(""); err != nil {
		return err
	}
	if n := r.Finish.Failures(); n >= r.MaxFailures {
		return failure.Newf(failure.ResourceTool, "loop.Run",
			"%d tool calls in a row failed; look at their results, and try again when the tools work", n).
			With("reason", "consecutive-tool-failures")
	}
	if ctx.Err() != nil {
		return stop.ContextError(ctx)
	}
	return nil
}

// suspend makes everything that this turn did durable for the turn that continues, and emits which calls wait.
func (r *Runner) suspend(ctx context.Context, pending []execution.Pending) error {
	if len(pending) > execution.MaxPending {
		return pendingcall.TooManyError(len(pending))
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

// checkBudget asks the budget for all calls that are about to run, before any of them runs or is in the journal.
// So a rejection leaves no round half done. A call that has its result already costs nothing. Granted calls
// count as used, because a tool may have an effect even if it fails. Nil calls do not run.
func (r *Runner) checkBudget(calls ...*toolcall.Call) error {
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

// isNew reports whether a call is about to run, and did not run in an earlier attempt.
func (r *Runner) isNew(c *toolcall.Call) bool {
	_, found := r.Log.Find(c.Entry.Number, execution.Done)
	return c.State == toolcall.Ready && !c.IsInDoubt(r.Log) && !found
}

// emitStart emits that a call has started, unless an earlier attempt emitted it or the call waits.
func (r *Runner) emitStart(c *toolcall.Call) error {
	if c.State == toolcall.Replayed || c.State == toolcall.Waiting {
		return nil
	}
	return r.Control.Events.Emit(event.ToolStarted{CallID: c.Asked.ID, Tool: c.Asked.Name, Arguments: c.Hook.Arguments})
}

// execute runs calls concurrently, and emits meanwhile what their tools report. Nil calls do not run.
func (r *Runner) execute(ctx context.Context, calls ...*toolcall.Call) {
	var tasks []toolprogress.Task
	for _, c := range calls {
		if c != nil {
			run := func(ctx context.Context) { r.Execute.Run(ctx, c) }
			tasks = append(tasks, toolprogress.Task{CallID: c.Asked.ID, Tool: c.Asked.Name, Run: run})
		}
	}
	toolprogress.Watch(ctx, r.Control.Events, tasks...)
}

// wait returns what a call waits for. The turn that continues makes the call. When the turn stops meanwhile, the call is
// abandoned.
func (r *Runner) wait(ctx context.Context, c *toolcall.Call) ([]execution.Pending, error) {
	if r.Stop.Finishing() {
		return nil, r.Finish.Abandon(ctx, c)
	}
	return c.Pending, nil
}
