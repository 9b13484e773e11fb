package turn

import (
	"context"
	"errors"
	"slices"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/event"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
)

// trespassed tells that an attempt wrote, or tried to write, state of another owner: the worker
// says so in its result, or it changed the place of the step, which is found here (SO-12). One
// that the worker has told itself is not told again.
func (t *turn) trespassed(ctx context.Context, at *position, result *troupev1.StepResult, err error) error {
	v, ok := event.OwnershipViolation{}, false
	if lost, is := errors.AsType[*dispatch.LostError](err); is {
		if v, ok = event.ViolationOf(lost.Failure); ok {
			at.instance = lost.Instance.ID
			t.violations.Record(ctx, string(identity.Worker), v, map[string]string{"trace": t.turn.Trace, "instance": lost.Instance.ID})
		}
	} else if why := grpcfailure.FromProto(result.GetFailure()); why != nil {
		v, ok = event.ViolationOf(why)
	}
	if !ok || slices.Contains(at.violated, v.Key) {
		return nil
	}
	return t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_OwnershipViolation{OwnershipViolation: wire.ViolationToProto(v)}})
}
