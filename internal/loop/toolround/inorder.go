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
		if pending, err := r.runOne(ctx, asked); err != nil || len(pending) > 0 {
			return pending, err
		}
	}
	return nil, nil
}

// runCall takes a call through all phases. It returns what the call waits for, if it waits.
func (r *Runner) runOne(ctx context.Context, asked conversation.ToolCall) ([]execution.Pending, error) {
	if r.Stop.Finishing() {
		return nil, r.Finish.Skip(asked)
	}
	c, err := r.Prepare.Prepare(ctx, asked)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, r.Finish.Skip(asked)
	}
	if err := r.checkBudget(c); err != nil {
		return nil, err
	}
	if err := r.Execute.Recall(ctx, c); err != nil {
		return nil, err
	}
	if err := r.emitStart(c); err != nil {
		return nil, err
	}
	r.execute(ctx, c)
	if c.State == toolcall.Waiting {
		return r.wait(ctx, c)
	}
	if err := r.Finish.Finish(ctx, c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, stop.ContextError(ctx)
	}
	return nil, nil
}
