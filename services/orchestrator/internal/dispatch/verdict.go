package dispatch

import (
	"context"
	"errors"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// breakerResult returns what the outcome of an attempt shows about the instance. A lost step counts against the
// instance, and so does a failure of the system below the agent. Failures of the agent, its model, the turn or
// the memory service do not count. Neither does an instance that is busy, drains or was fenced, nor a step that
// the turn ended.
func breakerResult(ctx context.Context, result *troupev1.StepResult, accepted bool, err error) (breaker.Result, error) {
	if lost, ok := errors.AsType[*LostError](err); ok {
		if lost.MemoryOutage || failure.Is(lost.Failure, failure.InstanceDraining, failure.Fenced) {
			return breaker.Inconclusive, lost
		}
		return breaker.Failure, lost
	}
	if err != nil || !accepted {
		if accepted && ctx.Err() == nil && (failure.ModeOf(err) == failure.Unknown || isSystemFailure(err)) {
			return breaker.Failure, err
		}
		return breaker.Inconclusive, err
	}
	if why := grpcfailure.FromProto(result.GetFailure()); why != nil && isSystemFailure(why) {
		return breaker.Failure, why
	}
	return breaker.Success, nil
}

// isSystemFailure reports whether something below the agent failed.
func isSystemFailure(err error) bool {
	return failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.SystemCrash, failure.SystemOOM, failure.SystemDisk)
}
