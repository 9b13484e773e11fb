package toolround

import (
	"context"

	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// runInOrder runs calls one after the other (CO-31). It stops at the first call that waits, because later calls
// may depend on its result.
func (r *Runner) runInOrder(ctx context.Context, calls []conversation.ToolCall) ([]execution.Pending, error) {
	for _, asked := range calls {
		if pending, err := r.runCall(ctx, asked); err != nil || len(pending) > 0 {
			return pending, err
		}
	}
	return nil, nil
}

// runCall takes a call through all phases. It returns what the call waits for, if it waits.
func (r *Runner) runCall(ctx context.Context, asked conversation.ToolCall) ([]execution.Pending, error) {
	if r.Stop.IsFinishing() {
		return nil, r.Finisher.Skip(asked)
	}
	c, err := r.Preparer.Prepare(ctx, asked)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, r.Finisher.Skip(asked)
	}
	if err := r.reserveBudget(c); err != nil {
		return nil, err
	}
	if err := r.Executor.RestoreFromJournal(ctx, c); err != nil {
		return nil, err
	}
	if err := r.emitStart(c); err != nil {
		return nil, err
	}
	r.executeAll(ctx, c)
	if c.State == toolcall.Waiting {
		return r.pendingOrAbandon(ctx, c)
	}
	if err := r.Finisher.Finish(ctx, c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, stop.NewContextError(ctx)
	}
	return nil, nil
}
