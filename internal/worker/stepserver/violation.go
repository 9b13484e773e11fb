package stepserver

import (
	"context"
	"errors"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// trespasses are the writes of one step that were refused, because the state has another owner.
// Each is told on the trace; those that this process refused are counted here, and those of the
// memory service there. It is used by the goroutine of the step.
type trespasses struct {
	violations *telemetry.Violations
	req        *troupev1.ExecuteStepRequest
	out        *sender
	told       map[string]bool // keys
}

func (s *agentServer) trespasses(req *troupev1.ExecuteStepRequest, out *sender) *trespasses {
	return &trespasses{s.violations, req, out, map[string]bool{}}
}

// note takes notice of an event of the agent, which is told anyhow.
func (t *trespasses) note(ctx context.Context, e event.Event) {
	v, ok := e.Payload.(event.OwnershipViolation)
	if !ok {
		return
	}
	t.told[v.Key] = true
	t.violations.Record(ctx, string(identity.Worker), v, map[string]string{"trace": t.req.GetTraceId(), "root_trace_id": t.req.GetRootTraceId()})
}

// failed tells of the one that a step fails with, unless the agent's own process refused it, which
// has told it.
func (t *trespasses) failed(ctx context.Context, err error) {
	refused, ok := errors.AsType[*failure.Error](err)
	if !ok || refused.Mode != failure.StateViolation || t.told[refused.Facts[failure.FactKey]] {
		return
	}
	v, theirs := event.ViolationOf(err)
	if !theirs { // nobody was asked: it was found on the way to the memory service
		v, ok = event.ViolationOf(refused.With(failure.FactActor, t.req.GetAgent()))
		if !ok {
			return
		}
		t.note(ctx, event.Event{Payload: v})
	}
	_ = t.out.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: &troupev1.Event{
		Payload: &troupev1.Event_OwnershipViolation{OwnershipViolation: wire.ViolationToProto(v)},
	}}}) // who does not hear it does not hear the result either
}
