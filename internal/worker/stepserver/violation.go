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

// violations reports the writes of one step that were rejected because the state has another owner.
// Each is published on the trace. This process counts the writes that it rejected itself; the memory
// service counts its own. Only the goroutine of the step uses it.
type violations struct {
	violations *telemetry.Violations
	req        *troupev1.ExecuteStepRequest
	out        *sender
	published  map[string]bool // keys whose violation was published
}

func (s *Server) newViolations(req *troupev1.ExecuteStepRequest, out *sender) *violations {
	return &violations{s.violations, req, out, map[string]bool{}}
}

// note counts a violation among the agent's events, which are published separately.
func (t *violations) note(ctx context.Context, e event.Event) {
	v, ok := e.Payload.(event.OwnershipViolation)
	if !ok {
		return
	}
	t.published[v.Key] = true
	t.violations.Record(ctx, string(identity.Worker), v, map[string]string{"trace": t.req.GetTraceId(), "root_trace_id": t.req.GetRootTraceId()})
}

// noteStepError publishes the violation that a step failed with, unless this process rejected the write and has
// published it.
func (t *violations) noteStepError(ctx context.Context, err error) {
	refused, ok := errors.AsType[*failure.Error](err)
	if !ok || refused.Mode != failure.StateViolation || t.published[refused.Facts[failure.FactKey]] {
		return
	}
	v, theirs := event.ViolationOf(err)
	if !theirs { // rejected before the memory service was called
		v, ok = event.ViolationOf(refused.With(failure.FactActor, t.req.GetAgent()))
		if !ok {
			return
		}
		t.note(ctx, event.Event{Payload: v})
	}
	_ = t.out.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: &troupev1.Event{
		Payload: &troupev1.Event_OwnershipViolation{OwnershipViolation: wire.ViolationToProto(v)},
	}}}) // if this message is lost, so is the result
}
