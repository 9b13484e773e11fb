package turn

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
)

// unlessShut returns a context for the work of an agent's step that ends when the agent is
// quarantined (S18). The caller calls done.
func (t *turn) unlessShut(work context.Context, agent string) (_ context.Context, done func()) {
	work, cancel := context.WithCancelCause(work)
	shut := t.Roster.Desired().QuarantineBegun(agent)
	end := func() {
		if d, out := t.Roster.Desired().Quarantine(agent); out {
			cancel(&shutError{agent, d.Refusal("turn")})
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

// shutError ends the steps of an agent that is quarantined, and their turn.
type shutError struct {
	agent string
	why   error
}

func (s *shutError) Error() string { return s.why.Error() }

// Unwrap returns the refusal, which is policy_security.
func (s *shutError) Unwrap() error { return s.why }

// shut is that error, if the work ended for it.
func shut(work context.Context) error {
	if s, ok := errors.AsType[*shutError](context.Cause(work)); ok {
		return s
	}
	return nil
}

// fence has the epoch of a turn move on whose step was ended because its agent is quarantined:
// from then on its worker can write nothing, whatever it does. The turns below it end too: its worker
// is barred, and cannot cancel them. It returns why the turn fails.
func (t *turn) fence(work context.Context, open []*attempt, why error) error {
	s, ok := errors.AsType[*shutError](why)
	if !ok {
		return why
	}
	t.Telemetry.Audit.Record(audit.Entry{
		Kind: audit.Denied, Actor: "orchestrator " + t.Owner, Action: "end turn of quarantined agent", Object: s.agent, Result: string(failure.PolicySecurity),
		Facts: map[string]string{"trace_id": t.turn.Trace, "session_id": t.req.Session, "tenant": t.req.Tenant, "epoch": strconv.FormatInt(t.turn.Epoch, 10)},
	})
	if _, err := t.reclaim(work, open); err != nil && !failure.Is(err, failure.TurnNotOpen) {
		t.log.Warn("the turn of a quarantined agent is not fenced before it is closed", zap.String("trace", t.turn.Trace), zap.Error(err))
	}
	t.sweep(work, why)
	return why
}

// sweep has the turns end that lie below one which ended because its agent is quarantined. It is
// called again when that one's trace has ended: from then on its worker can ask for no others
// (package scope), and more of those are stored that it had just asked for: traces are stored beside
// the work.
func (t *turn) sweep(work context.Context, why error) {
	s, ok := errors.AsType[*shutError](why)
	if !ok {
		return
	}
	if err := t.endBelow(work, "agent "+s.agent+", for which it works, is quarantined"); err != nil {
		t.log.Warn("turns below that of a quarantined agent go on", zap.String("trace", t.turn.Trace), zap.Error(err))
	}
}

const (
	maxBelow  = 1000            // turns of a run that are looked at
	belowTime = 5 * time.Second // to have all below one end
)

// endBelow asks all turns below this one to end as cancelled, whoever drives them, and does not
// wait for that. They are found by their records, and not by what the worker told: it may have
// begun some and kept them to itself.
func (t *turn) endBelow(work context.Context, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), belowTime)
	defer cancel()
	run, err := t.Traces.Store().List(ctx, t.req.Tenant, trace.Query{Root: t.events.Root(), Limit: maxBelow})
	if err != nil {
		return err
	}
	below := map[string][]*troupev1.Trace{} // by the trace above
	for _, record := range run {
		above := record.GetParent().GetTraceId()
		below[above] = append(below[above], record)
	}
	var errs []error
	for next := []string{t.turn.Trace}; len(next) > 0; next = next[1:] {
		for _, record := range below[next[0]] {
			next = append(next, record.GetTraceId())
			if record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
				errs = append(errs, t.askToEnd(ctx, trace.Ref{Tenant: t.req.Tenant, Trace: record.GetTraceId()}, why))
			}
		}
		delete(below, next[0]) // a trace that names itself above leads nowhere
	}
	return errors.Join(errs...)
}

// tookOver says in the audit log that this orchestrator goes on with a turn of another.
func (t *turn) tookOver() {
	t.Telemetry.Audit.Record(audit.Entry{
		Kind: audit.Takeover, Actor: "orchestrator " + t.Owner, Action: "take over turn", Object: t.turn.Trace, Result: "ok",
		Facts: map[string]string{"session_id": t.req.Session, "tenant": t.req.Tenant, "epoch": strconv.FormatInt(t.turn.Epoch, 10)},
	})
}
