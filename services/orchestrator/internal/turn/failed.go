package turn

import (
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
)

// failed is why the turn has no answer, as it is stored and told (contract OC-20): with the stage
// and the trace, and without its cause, which is for the log.
func (t *turn) failed(why error) *failure.Error {
	in := failure.WithRun(t.stage(why), t.turn.Trace, why)
	if t.events != nil {
		in = in.With(failure.FactRoot, t.events.Root())
	}
	return grpcfailure.FromProto(grpcfailure.ToProto(in))
}

// stage is in which stage the turn failed: where it was last, unless it failed to find who goes
// on (OC-6).
func (t *turn) stage(why error) string {
	at := troupev1.Stage_STAGE_INITIALIZE
	if t.events != nil {
		at = t.events.Stage()
	}
	if e, ok := errors.AsType[*failure.Error](why); ok && (e.Mode == failure.NoWorker || e.Op == routing.Op) {
		at = troupev1.Stage_STAGE_ROUTE
	}
	return strings.ToLower(strings.TrimPrefix(at.String(), "STAGE_"))
}
