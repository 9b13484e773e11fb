package admission

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The caller of each function in this file holds the lock.

// getTenant returns the tenant with the given name, and creates it if needed. dropIdleTenant removes it when it
// has no turns and no callers.
func (g *Controller) getTenant(name string) *tenant {
	t, ok := g.tenants[name]
	if !ok {
		t = &tenant{name: name}
		g.tenants[name] = t
	}
	return t
}

func (g *Controller) dropIdleTenant(t *tenant) {
	if t.runningTurns == 0 && len(t.queue) == 0 {
		delete(g.tenants, t.name)
	}
}

// turnLimit returns how many turns may run at once.
func (g *Controller) turnLimit() int {
	if g.cfg.MaxTurns == nil {
		return math.MaxInt
	}
	return max(1, g.cfg.MaxTurns())
}

// tenantLimit returns how many turns of one tenant may run at once.
func (g *Controller) tenantLimit() int {
	limit := g.turnLimit()
	switch {
	case g.cfg.MaxTurnsPerTenant > 0:
		return min(limit, g.cfg.MaxTurnsPerTenant)
	case len(g.tenants) > 1:
		return max(1, limit/2)
	default:
		return limit
	}
}

// queueLimit returns how many callers may wait.
func (g *Controller) queueLimit() int { return cmp.Or(g.cfg.MaxQueue, g.turnLimit()) }

// nextTenant returns the tenant whose first caller is admitted next, or nil when no caller can be admitted.
func (g *Controller) nextTenant() (first *tenant) {
	if g.runningTurns >= g.turnLimit() {
		return nil
	}
	share := g.tenantLimit()
	for _, t := range g.tenants {
		if len(t.queue) > 0 && t.runningTurns < share && (first == nil || t.precedes(first)) {
			first = t
		}
	}
	return first
}

// precedes reports whether t is served before other: the tenant with fewer turns goes first. Between equals, the
// tenant that has waited longer for a permit goes first.
func (t *tenant) precedes(other *tenant) bool {
	return cmp.Or(cmp.Compare(t.runningTurns, other.runningTurns), cmp.Compare(t.lastGrant, other.lastGrant), cmp.Compare(t.name, other.name)) < 0
}

// admitQueued admits queued callers while there is capacity.
func (g *Controller) admitQueued() {
	for g.waitingCallers > 0 {
		t := g.nextTenant()
		if t == nil {
			return
		}
		c := t.queue[0]
		g.removeCaller(c)
		c.result <- admitResult{permit: g.grantPermit(t)}
	}
}

func (g *Controller) grantPermit(t *tenant) *Permit {
	g.runningTurns++
	t.runningTurns++
	g.grantCount++
	t.lastGrant = g.grantCount
	return &Permit{controller: g, tenant: t, startedAt: time.Now()}
}

func (g *Controller) removeCaller(c *caller) {
	t := c.tenant
	t.queue = slices.DeleteFunc(t.queue, func(other *caller) bool { return other == c })
	g.waitingCallers--
}

// displaceCaller rejects the last caller of the tenant with the longest queue, to make room for newcomer. The
// queue of newcomer must be shorter by at least two. It reports whether a caller was rejected.
func (g *Controller) displaceCaller(newcomer *tenant) bool {
	var longest *tenant
	for _, t := range g.tenants {
		if longest == nil || cmp.Or(cmp.Compare(len(t.queue), len(longest.queue)), cmp.Compare(t.name, longest.name)) > 0 {
			longest = t
		}
	}
	if len(longest.queue) < len(newcomer.queue)+2 {
		return false
	}
	last := longest.queue[len(longest.queue)-1]
	g.removeCaller(last)
	last.result <- admitResult{err: g.newRejection(longest, displaced, 0)}
	return true
}

// recordDuration updates the moving average of turn durations with one more turn.
func (g *Controller) recordDuration(took time.Duration) {
	if g.typicalTurnTime == 0 {
		g.typicalTurnTime = took
		return
	}
	g.typicalTurnTime += (took - g.typicalTurnTime) / averagedTurns
}

// averagedTurns is roughly how many recent turns the moving average covers.
const averagedTurns = 16

// expectedWait estimates how long one more caller of a tenant would wait. It is the number of callers ahead,
// divided by the number of turns that run at once, times the typical duration.
func (g *Controller) expectedWait(t *tenant) time.Duration {
	mine, before := len(t.queue)+1, 1
	for _, other := range g.tenants {
		if other == t {
			before += len(t.queue)
		} else {
			before += min(len(other.queue), mine)
		}
	}
	wait := func(callers, places int) time.Duration {
		return time.Duration(float64(callers) / float64(places) * float64(g.typicalTurnTime))
	}
	return max(wait(before, g.turnLimit()), wait(mine, g.tenantLimit()))
}
