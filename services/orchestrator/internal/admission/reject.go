package admission

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// reason a caller was refused, as metrics name it.
type reason string

const (
	queueFull reason = "queue_full"    // as many wait as may
	displaced reason = "displaced"     // it had to make room for a tenant with fewer callers
	tooLong   reason = "expected_wait" // it would wait for longer than it may
	tooSlow   reason = "queue_time"    // it did
	fanOut    reason = "fan_out"       // as many turns run below the one that waits for it as may
)

// Bounds of when a caller is told to ask again.
const (
	minRetryDelay     = 200 * time.Millisecond
	maxRetryDelay     = 30 * time.Second
	defaultRetryDelay = time.Second // when no turn has ended yet
)

// reject is called with the lock held. The message says what was full, and what to do.
func (g *Controller) reject(t *tenant, reason reason, within time.Duration) error {
	g.metrics.rejected(t.name, reason)
	limit, share := g.limit(), g.tenantLimit()
	full := "no more than %d turns may run here at once"
	if t.turns >= share && share < limit {
		full, limit = "no more than %d turns of one tenant may run here at once", share
	}
	after := defaultRetryDelay
	if g.typicalTime > 0 {
		after = min(max(g.expectedWait(t), minRetryDelay), maxRetryDelay).Round(time.Millisecond)
	}
	err := failure.Newf(failure.Overloaded, "admission", full+", and %s. Send the same request again in %s", limit, g.explain(reason, within), after)
	return err.WithRetryAfter(after).With("full", string(reason))
}

func (g *Controller) explain(reason reason, within time.Duration) string {
	switch {
	case reason == queueFull || reason == displaced:
		return "as many callers wait as may"
	case reason == tooSlow:
		return "none ended within the " + within.Round(time.Millisecond).String() + " that this caller may wait"
	case within <= 0:
		return "there is no time left to wait for one to end"
	default:
		return "it would take longer until one ends than the " + within.Round(time.Millisecond).String() + " that this caller may wait"
	}
}
