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

// violationReporter reports the ownership violations of one step: rejected writes to state of another owner. It
// records the writes that this process rejected; the memory service records the ones that it rejects. It also
// publishes the violation that made the step fail. Only the goroutine of the step may use it.
type violationReporter struct {
	recorder  *telemetry.Violations
	req       *troupev1.ExecuteStepRequest
	stream    *stepStream
	published map[string]bool // keys whose violation was published
}

func (s *Server) newViolationReporter(req *troupev1.ExecuteStepRequest, out *stepStream) *violationReporter {
	return &violationReporter{s.violations, req, out, map[string]bool{}}
}

// recordViolationEvent counts and audits e if it is an ownership violation, and does nothing for other events. The
// caller publishes the event.
func (r *violationReporter) recordViolationEvent(ctx context.Context, e event.Event) {
	v, ok := e.Payload.(event.OwnershipViolation)
	if !ok {
		return
	}
	r.published[v.Key] = true
	r.recorder.Record(ctx, string(identity.Worker), v, map[string]string{"trace": r.req.GetTraceId(), "root_trace_id": r.req.GetRootTraceId()})
}

// publishStepError publishes the violation that made a step fail. It does nothing if that violation was already
// published as an event.
func (r *violationReporter) publishStepError(ctx context.Context, err error) {
	rejection, ok := errors.AsType[*failure.Error](err)
	if !ok || rejection.Mode != failure.StateViolation || r.published[rejection.Facts[failure.FactKey]] {
		return
	}
	v, theirs := event.ViolationFromError(err)
	if !theirs { // this process rejected the write before it called the memory service
		v, ok = event.ViolationFromError(rejection.With(failure.FactActor, r.req.GetAgent()))
		if !ok {
			return
		}
		r.recordViolationEvent(ctx, event.Event{Payload: v})
	}
	_ = r.stream.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: &troupev1.Event{
		Payload: &troupev1.Event_OwnershipViolation{OwnershipViolation: wire.ViolationToProto(v)},
	}}}) // if this message cannot be sent, neither can the result
}
