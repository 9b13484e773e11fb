package loop

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// notRun is what a model reads of a tool that a stop came before.
const notRun = "Not run: the turn was stopped before it."

// round runs the tools that the model asked for. Behind it every call has one result, unless
// some wait: then the turn ends in the middle of it.
func (r *run) round(ctx context.Context, reply *hook.LLMReply) error {
	if err := r.say(reply); err != nil {
		return err
	}
	round := &hook.Round{Turn: r.turn, Calls: slices.Clone(reply.ToolCalls)} // whose change changes nothing
	r.Conversation.OpenRound(reply.ToolCalls)
	if err := late(r.Handlers.BeforeTools(ctx, round)); err != nil {
		return err
	}
	var err error
	if r.loop.Parallel && len(reply.ToolCalls) > 1 {
		err = r.parallel(ctx, reply.ToolCalls)
	} else {
		err = r.inOrder(ctx, reply.ToolCalls)
	}
	if err != nil {
		return err
	}
	if len(r.waiting) > 0 {
		return r.suspend(ctx)
	}
	r.Conversation.CloseRound()
	if !r.stopping() {
		if err := late(r.Handlers.AfterTools(ctx, round)); err != nil {
			return err
		}
	}
	if err := r.EmitChanges(""); err != nil {
		return err
	}
	if limit := r.maxFailures(); r.failures >= limit {
		return failure.Newf(failure.ResourceTool, "loop.Run",
			"%d tool calls in a row failed; look at their results, and try again when the tools work", r.failures).
			With("reason", "consecutive-tool-failures")
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

func (r *run) maxFailures() int {
	if r.loop.MaxFailures > 0 {
		return r.loop.MaxFailures
	}
	return DefaultMaxFailures
}

// inOrder runs calls one after the other (CO-31). Those behind one that waits may build on it:
// their turn comes when it has its result.
func (r *run) inOrder(ctx context.Context, calls []conversation.ToolCall) error {
	for _, c := range calls {
		if r.stopping() || r.Progress.Ended() {
			if err := r.skip(c); err != nil {
				return err
			}
			continue
		}
		w, err := r.prepare(ctx, c)
		if err != nil {
			return err
		}
		if w == nil { // a handler stopped the turn before the tool
			if err := r.skip(c); err != nil {
				return err
			}
			continue
		}
		if err := r.affordTools(w); err != nil {
			return err
		}
		if err := r.recall(ctx, w); err != nil {
			return err
		}
		if err := r.begin(w); err != nil {
			return err
		}
		r.attend(ctx, w)
		if w.waits() {
			if err := r.await(ctx, w); err != nil || len(r.waiting) > 0 {
				return err
			}
			continue
		}
		if err := r.finish(ctx, w); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ended(ctx)
		}
	}
	return nil
}

// parallel runs calls beside each other: they are prepared in order and numbered before the
// first begins, and finished in order when the last has ended (C-9, guarantees 2.8). All that
// wait are collected; what has ended behind one of them keeps its result for later.
func (r *run) parallel(ctx context.Context, calls []conversation.ToolCall) error {
	work := make([]*work, len(calls))
	for i, c := range calls {
		if r.stopping() || r.Progress.Ended() {
			continue
		}
		var err error
		if work[i], err = r.prepare(ctx, c); err != nil {
			return err
		}
	}
	if err := r.affordTools(work...); err != nil {
		return err
	}
	for i, w := range work {
		switch {
		case w == nil:
		case !w.done && (r.stopping() || r.Progress.Ended()): // by a handler of a call behind it
			work[i] = nil
		default:
			if err := r.recall(ctx, w); err != nil {
				return err
			}
		}
	}
	for _, w := range work {
		if w != nil {
			if err := r.begin(w); err != nil {
				return err
			}
		}
	}
	lanes(work)
	r.attend(ctx, work...)
	for _, w := range work { // a stop is stronger than what waits, also before it
		if w != nil && w.nest != nil && w.nest.Stopped != "" {
			r.stopAll(ctx, w.nest.Stopped)
		}
	}
	for i, w := range work {
		var err error
		switch {
		case w == nil:
			err = r.skip(calls[i])
		case w.waits():
			err = r.await(ctx, w)
		case len(r.waiting) > 0:
			err = r.part(w)
		default:
			err = r.finish(ctx, w)
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

// lanes gives the nested calls of a round their places.
func lanes(all []*work) {
	var nested []*work
	for _, w := range all {
		if w != nil && w.nest != nil {
			nested = append(nested, w)
		}
	}
	for lane, w := range nested {
		w.nest.Lane, w.nest.Lanes = lane, len(nested)
	}
}

// skip answers a call that does not run.
func (r *run) skip(c conversation.ToolCall) error {
	r.Conversation.Append(conversation.Message{Role: conversation.RoleTool, Text: notRun, ToolCallID: c.ID})
	return r.EmitLast()
}

// failed reports whether a tool call counts as a failure.
func failed(s event.ToolStatus) bool {
	return s == event.ToolError || s == event.ToolNotFound
}
