package admission

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// why a caller was refused, as metrics name it.
type why string

const (
	queueFull why = "queue_full"    // as many wait as may
	displaced why = "displaced"     // it had to make room for a tenant with fewer callers
	tooLong   why = "expected_wait" // it would wait for longer than it may
	tooSlow   why = "queue_time"    // it did
	fanOut    why = "fan_out"       // as many turns run below the one that waits for it as may
)

// Bounds of when a caller is told to ask again.
const (
	soonest = 200 * time.Millisecond
	latest  = 30 * time.Second
	unknown = time.Second // when no turn has ended yet
)

// refuse is called with the lock held. The message says what was full, and what to do.
func (g *Gate) refuse(t *tenant, reason why, within time.Duration) error {
	g.count.refused(t.name, reason)
	limit, share := g.limit(), g.share()
	full := "no more than %d turns may run here at once"
	if t.turns >= share && share < limit {
		full, limit = "no more than %d turns of one tenant may run here at once", share
	}
	after := unknown
	if g.typical > 0 {
		after = min(max(g.expected(t), soonest), latest).Round(time.Millisecond)
	}
	err := failure.Newf(failure.Overloaded, "admission", full+", and %s. Send the same request again in %s", limit, g.saying(reason, within), after)
	return err.WithRetryAfter(after).With("full", string(reason))
}

func (g *Gate) saying(reason why, within time.Duration) string {
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
