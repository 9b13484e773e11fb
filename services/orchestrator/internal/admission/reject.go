package admission

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// reason is why a caller was rejected. It is a metric label.
type reason string

const (
	queueFull     reason = "queue_full"    // the queue is full
	displaced     reason = "displaced"     // it made room for a tenant with a shorter queue
	waitTooLong   reason = "expected_wait" // the expected wait exceeds the allowed wait
	waitExpired   reason = "queue_time"    // the allowed wait has passed
	fanOutReached reason = "fan_out"       // the parent has as many running children as allowed
)

// Bounds of the retry delay of a rejected caller.
const (
	minRetryDelay     = 200 * time.Millisecond
	maxRetryDelay     = 30 * time.Second
	defaultRetryDelay = time.Second // used until the first turn has ended
)

// newRejection returns the error of a rejected caller and counts the rejection. The error says which limit was
// reached and when to retry. The caller holds the lock.
func (g *Controller) newRejection(t *tenant, reason reason, within time.Duration) error {
	g.metrics.recordRejected(t.name, reason)
	limit, share := g.turnLimit(), g.tenantLimit()
	full := "no more than %d turns may run here at once"
	if t.runningTurns >= share && share < limit {
		full, limit = "no more than %d turns of one tenant may run here at once", share
	}
	after := defaultRetryDelay
	if g.typicalTurnTime > 0 {
		after = min(max(g.expectedWait(t), minRetryDelay), maxRetryDelay).Round(time.Millisecond)
	}
	err := failure.Newf(failure.Overloaded, "admission", full+", and %s. Send the same request again in %s", limit, g.describeReason(reason, within), after)
	return err.WithRetryAfter(after).With("full", string(reason))
}

func (g *Controller) describeReason(reason reason, within time.Duration) string {
	switch {
	case reason == queueFull || reason == displaced:
		return "the queue of waiting callers is full"
	case reason == waitExpired:
		return "none ended within the " + within.Round(time.Millisecond).String() + " that this caller may wait"
	case within <= 0:
		return "there is no time left to wait for one to end"
	default:
		return "no turn is expected to end within the " + within.Round(time.Millisecond).String() + " that this caller may wait"
	}
}
