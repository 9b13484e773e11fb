package toolround

import (
	"context"

	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// runConcurrently runs the calls of a round concurrently. It prepares and numbers them in order before the first
// begins, and finishes them in order after the last has ended (C-9, guarantees 2.8). It collects what all waiting
// calls wait for. The result of a call after a waiting one is finished in a later turn.
func (r *Runner) runConcurrently(ctx context.Context, asked []conversation.ToolCall) ([]execution.Pending, error) {
	calls, err := r.prepareAll(ctx, asked)
	if err != nil {
		return nil, err
	}
	if err := r.restoreAll(ctx, calls); err != nil {
		return nil, err
	}
	for _, c := range calls {
		if c != nil {
			if err := r.emitStart(c); err != nil {
				return nil, err
			}
		}
	}
	assignLanes(calls)
	r.executeAll(ctx, calls...)
	for _, c := range calls { // a stop takes precedence over waiting calls, even earlier ones
		if c != nil && c.Nested != nil && c.Nested.Stopped != "" {
			toolcall.StopTurn(ctx, r.Control.Turn(), c.Nested.Stopped)
		}
	}
	pending, err := r.finishAll(ctx, asked, calls)
	if err == nil && ctx.Err() != nil {
		err = stop.NewContextError(ctx)
	}
	return pending, err
}

// prepareAll prepares calls in order. The element of a call that does not run because the turn is stopped is nil.
func (r *Runner) prepareAll(ctx context.Context, asked []conversation.ToolCall) ([]*toolcall.Call, error) {
	calls := make([]*toolcall.Call, len(asked))
	for i := range asked {
		if r.Stop.IsFinishing() {
			continue
		}
		var err error
		if calls[i], err = r.Preparer.Prepare(ctx, asked[i]); err != nil {
			return nil, err
		}
	}
	return calls, r.reserveBudget(calls...)
}

// restoreAll restores the results of calls from the journal in order. It drops calls that do not run because a
// handler of a later call stopped the turn.
func (r *Runner) restoreAll(ctx context.Context, calls []*toolcall.Call) error {
	for i, c := range calls {
		switch {
		case c == nil:
		case c.State != toolcall.Answered && r.Stop.IsFinishing():
			calls[i] = nil
		default:
			if err := r.Executor.RestoreFromJournal(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// finishAll finishes calls in order, and returns what the waiting calls wait for.
func (r *Runner) finishAll(ctx context.Context, asked []conversation.ToolCall, calls []*toolcall.Call) ([]execution.Pending, error) {
	var pending []execution.Pending
	for i, c := range calls {
		var err error
		switch {
		case c == nil:
			err = r.Finisher.Skip(asked[i])
		case c.State == toolcall.Waiting:
			var more []execution.Pending
			more, err = r.pendingOrAbandon(ctx, c)
			pending = append(pending, more...)
		case len(pending) > 0:
			err = r.Finisher.FinishDeferred(c)
		default:
			err = r.Finisher.Finish(ctx, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return pending, nil
}

// assignLanes gives each nested call of a round its own lane.
func assignLanes(calls []*toolcall.Call) {
	var nested []*toolcall.Call
	for _, c := range calls {
		if c != nil && c.Nested != nil {
			nested = append(nested, c)
		}
	}
	for lane, c := range nested {
		c.Nested.Lane, c.Nested.Lanes = lane, len(nested)
	}
}
