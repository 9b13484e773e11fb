package publish

import (
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
)

// NewTurnFailure returns the failure of a turn in the form that is stored and published (contract OC-20). It
// contains the stage and the trace, but not the cause, which is only logged. w is nil when the trace could not be
// opened.
func NewTurnFailure(w *Writer, traceID string, why error) *failure.Error {
	err := failure.WithRun(FailureStage(w, why), traceID, why)
	if w != nil {
		err = err.With(failure.FactRoot, w.RootTrace())
	}
	return grpcfailure.FromProto(grpcfailure.ToProto(err))
}

// FailureStage returns the stage in which a turn failed: the stage of the last event, or route when no agent was
// found for the next step (OC-6).
func FailureStage(w *Writer, why error) string {
	at := troupev1.Stage_STAGE_INITIALIZE
	if w != nil {
		at = w.events.Stage()
	}
	if e, ok := errors.AsType[*failure.Error](why); ok && (e.Mode == failure.NoWorker || e.Op == routing.Op) {
		at = troupev1.Stage_STAGE_ROUTE
	}
	return strings.ToLower(strings.TrimPrefix(at.String(), "STAGE_"))
}
