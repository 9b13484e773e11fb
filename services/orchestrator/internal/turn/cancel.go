package turn

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Cancel ends the turn of a session that this runner drives, if there is one, as cancelled,
// and returns when it has ended, or with ctx. Then the turn ends all the same.
func (r *Runner) Cancel(ctx context.Context, ref session.Ref) error {
	if t := r.seats.driven(ref); t != nil {
		return t.cancelled(ctx, "")
	}
	return nil
}

// CancelTrace ends the turn of a trace, whatever it is at and whoever drives it, as Cancel
// does (OC-5). One that has ended is left as it is. When ctx ends before another owner has
// heard of it, the turn is cancelled all the same. Modes: not_found, trace_orphaned when
// nobody drives the trace.
func (r *Runner) CancelTrace(ctx context.Context, ref trace.Ref, reason string) error {
	if t := r.seats.traced(ref); t != nil {
		return t.cancelled(ctx, reason)
	}
	record, err := r.Traces.Store().Get(ctx, ref)
	if err != nil || record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
		return err
	}
	if err := r.Traces.Store().Stop(ctx, trace.Stop{Ref: ref, Reason: reason}); err != nil {
		return err
	}
	for _, watchErr := range r.Traces.Watch(ctx, ref, record.GetLastSequence()) {
		err = watchErr
	}
	if failure.Is(err, failure.TraceOrphaned) {
		err = failure.New(failure.TraceOrphaned, "turn.CancelTrace", "nobody drives the trace; its session is free once the lease of the turn has run out")
	}
	return err
}

// askToEnd cancels the turn of a trace as CancelTrace does, and does not wait for its end.
func (r *Runner) askToEnd(ctx context.Context, ref trace.Ref, reason string) error {
	if t := r.seats.traced(ref); t != nil {
		t.stopFor(cancelledBy(reason))
		return nil
	}
	return r.Traces.Store().Stop(ctx, trace.Stop{Ref: ref, Reason: reason})
}

// cancelled ends the turn, and returns when nothing of it runs any more.
func (t *turn) cancelled(ctx context.Context, reason string) error {
	t.stopFor(cancelledBy(reason))
	select {
	case <-t.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cancelledBy is why a turn ends that somebody cancelled.
func cancelledBy(reason string) error {
	why := "the turn was cancelled"
	if reason != "" {
		why += ": " + reason
	}
	return failure.New(failure.UserCancelled, "turn", why)
}
