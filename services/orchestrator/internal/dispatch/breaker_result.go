package dispatch

import (
	"context"
	"errors"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// breakerResult returns what an attempt tells the breaker about the instance. Lost steps and system failures below
// the agent count against the instance. Failures of the agent, its model, the turn or the memory service do not
// count. A busy, draining or fenced instance does not count either, nor does a step that the turn ended.
func breakerResult(ctx context.Context, result *troupev1.StepResult, accepted bool, err error) (breaker.Result, error) {
	if lost, ok := errors.AsType[*LostError](err); ok {
		if lost.IsMemoryOutage || failure.Is(lost.Failure, failure.InstanceDraining, failure.Fenced) {
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

// isSystemFailure reports whether the failure lies in the system below the agent, such as the network or the disk.
func isSystemFailure(err error) bool {
	return failure.Is(err, failure.SystemNetwork, failure.SystemTimeout, failure.SystemCrash, failure.SystemOOM, failure.SystemDisk)
}
