package step

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
)

// untilQuarantined returns a context for a step that ends when its agent is quarantined (S18). The
// caller calls done.
func (t *Turn) untilQuarantined(work context.Context, agent string) (_ context.Context, done func()) {
	work, cancel := context.WithCancelCause(work)
	shut := t.svc.Roster.Desired().QuarantineBegun(agent)
	end := func() {
		if d, out := t.svc.Roster.Desired().Quarantine(agent); out {
			cancel(&quarantinedError{agent, d.Refusal("turn")})
		}
	}
	var waiting sync.WaitGroup
	select {
	case <-shut: // so that nothing begins
		end()
	default:
		waiting.Go(func() {
			select {
			case <-shut:
				end()
			case <-work.Done():
			}
		})
	}
	return work, func() { cancel(nil); waiting.Wait() }
}

// quarantinedError ends the steps of a quarantined agent, and their turn.
type quarantinedError struct {
	agent string
	why   error
}

func (q *quarantinedError) Error() string { return q.why.Error() }

// Unwrap returns the refusal, which is policy_security.
func (q *quarantinedError) Unwrap() error { return q.why }

// quarantineOf is why the work ended, if that was a quarantine; else nil.
func quarantineOf(work context.Context) *quarantinedError {
	q, _ := errors.AsType[*quarantinedError](context.Cause(work))
	return q
}

// quarantineError is quarantineOf as an error.
func quarantineError(work context.Context) error {
	if q := quarantineOf(work); q != nil {
		return q
	}
	return nil
}

// fenceQuarantined moves the epoch of a turn on whose step ended by a quarantine: from then on its
// worker can write nothing. The descendants of the turn end too, because its worker is barred and cannot
// cancel them. It returns why the turn fails, which is its argument.
func (t *Turn) fenceQuarantined(work context.Context, open []*attempt, why error) error {
	q, ok := errors.AsType[*quarantinedError](why)
	if !ok {
		return why
	}
	t.svc.Telemetry.Audit.Record(audit.Entry{
		Kind: audit.Denied, Actor: "orchestrator " + t.svc.Owner, Action: "end turn of quarantined agent", Object: q.agent,
		Result: string(failure.PolicySecurity),
		Facts: map[string]string{
			"trace_id": t.Turn.Trace, "session_id": t.Request.Session, "tenant": t.Request.Tenant,
			"epoch": strconv.FormatInt(t.Lease.Epoch(), 10),
		},
	})
	if _, err := t.reclaim(work, open); err != nil && !failure.Is(err, failure.TurnNotOpen) {
		t.Events.Log().Warn("the turn of a quarantined agent is not fenced before it is closed", zap.String("trace", t.Turn.Trace), zap.Error(err))
	}
	t.EndDescendants(work, why)
	return why
}

// EndDescendants ends the turns below one that ended by a quarantine; else it does nothing. It is
// called again when the trace of that turn has ended. From then on its worker can ask for no other
// turns (package scope), and those that it asked for just before are stored by then.
func (t *Turn) EndDescendants(work context.Context, why error) {
	q, ok := errors.AsType[*quarantinedError](why)
	if !ok {
		return
	}
	if err := t.cancelDescendants(work, "agent "+q.agent+", for which it works, is quarantined"); err != nil {
		t.Events.Log().Warn("turns below a turn of a quarantined agent were not cancelled", zap.String("trace", t.Turn.Trace), zap.Error(err))
	}
}

const (
	maxRun        = 1000            // turns of a run that are looked at
	cancelTimeout = 5 * time.Second // to ask all descendants to end
)

// cancelDescendants asks all turns below this one to end as cancelled, at whichever orchestrator, and
// does not wait. It finds them by their records, not by events: the worker may not have reported some.
func (t *Turn) cancelDescendants(work context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), cancelTimeout)
	defer cancel()
	run, err := t.svc.Traces.Store().List(ctx, t.Request.Tenant, trace.Query{Root: t.Events.Root(), Limit: maxRun})
	if err != nil {
		return err
	}
	children := map[string][]*troupev1.Trace{} // by parent
	for _, record := range run {
		parent := record.GetParent().GetTraceId()
		children[parent] = append(children[parent], record)
	}
	var errs []error
	for next := []string{t.Turn.Trace}; len(next) > 0; next = next[1:] {
		for _, record := range children[next[0]] {
			next = append(next, record.GetTraceId())
			if record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
				errs = append(errs, t.cancel(ctx, trace.Ref{Tenant: t.Request.Tenant, Trace: record.GetTraceId()}, reason))
			}
		}
		delete(children, next[0]) // a trace that names itself as its parent leads nowhere
	}
	return errors.Join(errs...)
}

// cancel asks the turn of a trace to end, here or by way of the store, and does not wait.
func (t *Turn) cancel(ctx context.Context, ref trace.Ref, reason string) error {
	if turn := t.svc.Active.OfTrace(ref); turn != nil {
		turn.Stop(active.Cancelled(reason))
		return nil
	}
	return t.svc.Traces.Store().Stop(ctx, trace.Stop{Ref: ref, Reason: reason})
}
