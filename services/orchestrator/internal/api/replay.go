package api

import (
	"context"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/replay"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// ReplayTrace implements troupev1.OrchestratorServiceServer.
func (o *Orchestrator) ReplayTrace(ctx context.Context, req *troupev1.ReplayTraceRequest) (*troupev1.ReplayTraceResponse, error) {
	return o.Replayer.ReplayTrace(ctx, replay.Request{
		Ref: trace.Ref{Tenant: tenantFromContext(ctx), Trace: req.GetTraceId()}, Step: int(req.GetStep()), Instance: req.GetInstanceId(),
	})
}
