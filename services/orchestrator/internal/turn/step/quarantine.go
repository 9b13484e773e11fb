package step

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/quarantine"
)

// fenceQuarantined raises the epoch of a turn after a quarantine ended one of its steps, so that the worker can
// write nothing more. It also ends the descendants of the turn, because the worker is barred and cannot cancel
// them. It returns the reason why the turn fails, which is its argument.
func (t *Turn) fenceQuarantined(work context.Context, open []*attempt, why error) error {
	q, ok := errors.AsType[*quarantine.Error](why)
	if !ok {
		return why
	}
	q.RecordAudit(t.services.Telemetry.Audit, quarantine.Turn{
		Owner: t.services.Owner, Trace: t.Events.TraceID(),
		Session: t.assignment.Request.Session, Tenant: t.assignment.Request.Tenant, Epoch: t.assignment.Lease.Epoch(),
	})
	if _, err := t.reclaim(work, open); err != nil && !failure.Is(err, failure.TurnNotOpen) {
		t.Events.Logger().Warn("the turn of a quarantined agent is not fenced before it is closed", zap.String("trace", t.Events.TraceID()), zap.Error(err))
	}
	t.EndDescendants(work, why)
	return why
}

// EndDescendants ends the descendants of a turn that a quarantine has ended. For other turns it does nothing. It
// is called a second time after the trace of the turn has ended. By then, child turns requested at the last moment
// are stored, and the worker can request no more (package scope).
func (t *Turn) EndDescendants(work context.Context, why error) {
	q, ok := errors.AsType[*quarantine.Error](why)
	if !ok {
		return
	}
	err := t.services.CancelDescendants(context.WithoutCancel(work), Descendants{
		Tenant: t.assignment.Request.Tenant, Root: t.Events.RootTrace(), Trace: t.Events.TraceID(),
		Reason: "agent " + q.Agent + ", for which it works, is quarantined",
	})
	if err != nil {
		t.Events.Logger().Warn("turns below a turn of a quarantined agent were not cancelled", zap.String("trace", t.Events.TraceID()), zap.Error(err))
	}
}

// Descendants identifies the descendants of a turn, by its trace and its run.
type Descendants struct {
	Tenant, Root, Trace string
	Reason              string // why they are cancelled
}
