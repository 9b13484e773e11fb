package turn

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/step"
)

// Cancel ends the turn of a session that this orchestrator drives, if there is one, as cancelled. It returns
// when the turn has ended, or when ctx ends. The turn ends in any case.
func (r *Runner) Cancel(ctx context.Context, ref session.Ref) error {
	if turn := r.active.OfSession(ref); turn != nil {
		return turn.Cancel(ctx, "")
	}
	return nil
}

// CancelTrace ends the turn of a trace as cancelled, at whichever orchestrator, and returns when it has
// ended (OC-5). A turn that has ended is left as it is. When ctx ends before another owner has noticed,
// the turn is cancelled all the same. Modes: not_found, trace_orphaned when no orchestrator drives the trace.
func (r *Runner) CancelTrace(ctx context.Context, ref trace.Ref, reason string) error {
	if turn := r.active.OfTrace(ref); turn != nil {
		return turn.Cancel(ctx, reason)
	}
	record, err := r.cfg.Traces.Store().Get(ctx, ref)
	if err != nil || record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
		return err
	}
	if err := r.cfg.Traces.Store().Stop(ctx, trace.Stop{Ref: ref, Reason: reason}); err != nil {
		return err
	}
	for _, watchErr := range r.cfg.Traces.Watch(ctx, ref, record.GetLastSequence()) {
		err = watchErr
	}
	if failure.Is(err, failure.TraceOrphaned) {
		err = failure.New(failure.TraceOrphaned, "turn.CancelTrace",
			"no orchestrator drives the trace; its session is free once the lease of the turn has run out")
	}
	return err
}

const (
	maxRun        = 1000            // turns of a run that are looked at
	cancelTimeout = 5 * time.Second // to ask all descendants to end
)

// cancelDescendants asks all descendants of a turn to end as cancelled, at whichever orchestrator they run, and
// does not wait. It finds them by their records, not by events: the worker may not have reported some.
func (r *Runner) cancelDescendants(ctx context.Context, d step.Descendants) error {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	run, err := r.cfg.Traces.Store().List(ctx, d.Tenant, trace.Query{Root: d.Root, Limit: maxRun})
	if err != nil {
		return err
	}
	children := map[string][]*troupev1.Trace{} // by parent
	for _, record := range run {
		parent := record.GetParent().GetTraceId()
		children[parent] = append(children[parent], record)
	}
	var errs []error
	for next := []string{d.Trace}; len(next) > 0; next = next[1:] {
		for _, record := range children[next[0]] {
			next = append(next, record.GetTraceId())
			if record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
				errs = append(errs, r.stop(ctx, trace.Ref{Tenant: d.Tenant, Trace: record.GetTraceId()}, d.Reason))
			}
		}
		delete(children, next[0]) // a trace that names itself as its parent leads nowhere
	}
	return errors.Join(errs...)
}

// stop asks the turn of a trace to end, here or by way of the store, and does not wait.
func (r *Runner) stop(ctx context.Context, ref trace.Ref, reason string) error {
	if turn := r.active.OfTrace(ref); turn != nil {
		turn.Stop(active.CancelledError(reason))
		return nil
	}
	return r.cfg.Traces.Store().Stop(ctx, trace.Stop{Ref: ref, Reason: reason})
}
