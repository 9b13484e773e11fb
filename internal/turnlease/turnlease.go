// Package turnlease renews the lease of a turn while its step runs.
package turnlease

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// renewalsPerLease is how many renewals are sent during one lease, so that one or two of them may fail.
const renewalsPerLease = 3

// Renew renews the lease of a turn until ctx ends. It calls end when the turn is lost: another holder took it
// over, or the store was unreachable for a whole lease (guarantees F2, F3). In the second case the error has the
// fact lost_lease, so that the orchestrator may take the turn over and repeat the step.
func Renew(ctx context.Context, turns memory.Turns, hold memory.Lease, lease time.Duration, end context.CancelCauseFunc) {
	every := lease / renewalsPerLease
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, every)
		err := turns.RenewTurn(call, hold, lease)
		cancel()
		switch {
		case err == nil:
			last = asked
		case failure.Is(err, failure.Fenced, failure.TurnNotOpen, failure.NotFound, failure.SessionDeleted):
			end(err)
			return
		case time.Since(last) > lease:
			end(failure.New(failure.SystemNetwork, "turnlease.Renew",
				"the memory service could not be reached for the lease of the turn; the step is abandoned").
				With("lost_lease", "true").Because(err))
			return
		}
	}
}
