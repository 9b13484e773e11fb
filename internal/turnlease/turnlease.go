// Package turnlease keeps the lease of a turn while its step runs.
package turnlease

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// renewalsPerLease is how often a lease is renewed within its time, so that one or two replies may be lost.
const renewalsPerLease = 3

// Renew renews the lease of a turn until ctx ends. It calls end when the caller has lost the turn:
// another one holds it, or the store was unreachable for a whole lease (guarantees F2, F3). In the
// latter case the error has the fact lost_lease: the work did not fail, so it may be taken over and
// repeated.
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
