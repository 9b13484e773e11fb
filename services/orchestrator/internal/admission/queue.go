package admission

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// All functions of this file are called with the lock held.

// tenant is made when it is not known; forget drops it when it has nothing here.
func (g *Controller) tenant(name string) *tenant {
	t, ok := g.tenants[name]
	if !ok {
		t = &tenant{name: name}
		g.tenants[name] = t
	}
	return t
}

func (g *Controller) forget(t *tenant) {
	if t.turns == 0 && len(t.queue) == 0 {
		delete(g.tenants, t.name)
	}
}

// limit is how many turns there may be at once.
func (g *Controller) limit() int {
	if g.cfg.Turns == nil {
		return math.MaxInt
	}
	return max(1, g.cfg.Turns())
}

// tenantLimit is how many of them one tenant may have.
func (g *Controller) tenantLimit() int {
	limit := g.limit()
	switch {
	case g.cfg.PerTenant > 0:
		return min(limit, g.cfg.PerTenant)
	case len(g.tenants) > 1:
		return max(1, limit/2)
	default:
		return limit
	}
}

// queueLimit is how many callers may wait.
func (g *Controller) queueLimit() int { return cmp.Or(g.cfg.Queue, g.limit()) }

// nextTenant is the tenant whose turn it is; nil when nobody can come in.
func (g *Controller) nextTenant() (first *tenant) {
	if g.turns >= g.limit() {
		return nil
	}
	share := g.tenantLimit()
	for _, t := range g.tenants {
		if len(t.queue) > 0 && t.turns < share && (first == nil || t.precedes(first)) {
			first = t
		}
	}
	return first
}

// precedes reports whether a tenant comes first: who has less, and of those with the same, who
// has had nothing for longer.
func (t *tenant) precedes(other *tenant) bool {
	return cmp.Or(cmp.Compare(t.turns, other.turns), cmp.Compare(t.lastGrant, other.lastGrant), cmp.Compare(t.name, other.name)) < 0
}

// admitQueued lets in who can come in.
func (g *Controller) admitQueued() {
	for g.waiting > 0 {
		t := g.nextTenant()
		if t == nil {
			return
		}
		c := t.queue[0]
		g.remove(c)
		c.verdict <- verdict{permit: g.grant(t)}
	}
}

func (g *Controller) grant(t *tenant) *Permit {
	g.turns++
	t.turns++
	g.grants++
	t.lastGrant = g.grants
	return &Permit{controller: g, tenant: t, began: time.Now()}
}

func (g *Controller) remove(c *caller) {
	t := c.tenant
	t.queue = slices.DeleteFunc(t.queue, func(other *caller) bool { return other == c })
	g.waiting--
}

// displace refuses the last caller of the tenant that has the most, for one of a tenant that
// has at least two less.
func (g *Controller) displace(newcomer *tenant) bool {
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
	g.remove(last)
	last.verdict <- verdict{err: g.reject(longest, displaced, 0)}
	return true
}

// recordDuration takes the time of one more turn into account.
func (g *Controller) recordDuration(took time.Duration) {
	if g.typicalTime == 0 {
		g.typicalTime = took
		return
	}
	g.typicalTime += (took - g.typicalTime) / averagedTurns
}

// averagedTurns is how many turns the typical one is made of, about.
const averagedTurns = 16

// expectedWait is how long one more caller of a tenant would wait, as far as is known: those who
// come in before it, a turn's time for as many at once as there may be.
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
		return time.Duration(float64(callers) / float64(places) * float64(g.typicalTime))
	}
	return max(wait(before, g.limit()), wait(mine, g.tenantLimit()))
}
