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

// Cancel cancels the active turn of a session, if this orchestrator drives one. It returns when the turn has ended
// or ctx ends. The turn is cancelled even if ctx ends first.
func (r *Runner) Cancel(ctx context.Context, ref session.Ref) error {
	if turn := r.active.FindBySession(ref); turn != nil {
		return turn.Cancel(ctx, "")
	}
	return nil
}

// CancelTrace cancels the turn of a trace, whichever orchestrator drives it, and returns when the turn has ended
// (OC-5). It does not change a turn that has already ended. If ctx ends before another owner has read the request,
// the turn is cancelled nevertheless. Modes: not_found, trace_orphaned when no orchestrator drives the trace.
func (r *Runner) CancelTrace(ctx context.Context, ref trace.Ref, reason string) error {
	if turn := r.active.FindByTrace(ref); turn != nil {
		return turn.Cancel(ctx, reason)
	}
	record, err := r.cfg.Traces.Store().Get(ctx, ref)
	if err != nil || record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
		return err
	}
	if err := r.cfg.Traces.Store().RequestStop(ctx, trace.StopRequest{Ref: ref, Reason: reason}); err != nil {
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
	maxRun        = 1000            // maximum number of turns of a run that are examined
	cancelTimeout = 5 * time.Second // to ask all descendants to end
)

// cancelDescendants asks all descendants of a turn to end as cancelled, whichever orchestrators drive them, and
// does not wait. It finds them by their records and not by events, because the worker may not have reported all of
// them.
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
				errs = append(errs, r.stopTrace(ctx, trace.Ref{Tenant: d.Tenant, Trace: record.GetTraceId()}, d.Reason))
			}
		}
		delete(children, next[0]) // prevents an endless loop if traces name each other as parents
	}
	return errors.Join(errs...)
}

// stopTrace asks the turn of a trace to end, and does not wait. The request goes to the active turn here, or
// through the store to another orchestrator.
func (r *Runner) stopTrace(ctx context.Context, ref trace.Ref, reason string) error {
	if turn := r.active.FindByTrace(ref); turn != nil {
		turn.Stop(active.NewCancelledError(reason))
		return nil
	}
	return r.cfg.Traces.Store().RequestStop(ctx, trace.StopRequest{Ref: ref, Reason: reason})
}
