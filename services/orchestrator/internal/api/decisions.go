package api

import (
	"cmp"
	"context"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// defaultDecisionPageSize is the page size when the request specifies none.
const defaultDecisionPageSize = 20

// ListDecisions implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ListDecisions(ctx context.Context, req *troupev1.ListDecisionsRequest) (*troupev1.ListDecisionsResponse, error) {
	all, err := o.Traces.Store().Decisions(ctx, tenantFromContext(ctx), trace.DecisionQuery{
		Trace: req.GetTraceId(), Type: req.GetType(), Limit: cmp.Or(int(req.GetPageSize()), defaultDecisionPageSize),
	})
	return &troupev1.ListDecisionsResponse{Decisions: all}, err
}
