package memory

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// renewals is how often a turn is renewed in the time of its lease, so that an answer or two
// may be lost.
const renewals = 3

// Keep keeps the lease of a turn until ctx ends, and calls end when the turn is no longer the
// holder's: somebody else has it, or for a whole lease nobody could be asked (guarantees F2,
// F3). The fact lost_lease of the latter says that the work did not fail: it may be taken back
// and done again.
func Keep(ctx context.Context, turns Turns, hold Hold, lease time.Duration, end context.CancelCauseFunc) {
	every := lease / renewals
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
			end(failure.New(failure.SystemNetwork, "memory.Keep",
				"the memory service could not be reached for the lease of the turn; the step is given up").
				With("lost_lease", "true").Because(err))
			return
		}
	}
}
