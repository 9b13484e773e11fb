package admission

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// All functions of this file are called with the lock held.

// tenant is made when it is not known; forget drops it when it has nothing here.
func (g *Gate) tenant(name string) *tenant {
	t, ok := g.tenants[name]
	if !ok {
		t = &tenant{name: name}
		g.tenants[name] = t
	}
	return t
}

func (g *Gate) forget(t *tenant) {
	if t.turns == 0 && len(t.line) == 0 {
		delete(g.tenants, t.name)
	}
}

// limit is how many turns there may be at once.
func (g *Gate) limit() int {
	if g.cfg.Turns == nil {
		return math.MaxInt
	}
	return max(1, g.cfg.Turns())
}

// share is how many of them one tenant may have.
func (g *Gate) share() int {
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

// room is how many callers may wait.
func (g *Gate) room() int { return cmp.Or(g.cfg.Queue, g.limit()) }

// next is the tenant whose turn it is; nil when nobody can come in.
func (g *Gate) next() (first *tenant) {
	if g.turns >= g.limit() {
		return nil
	}
	share := g.share()
	for _, t := range g.tenants {
		if len(t.line) > 0 && t.turns < share && (first == nil || t.before(first)) {
			first = t
		}
	}
	return first
}

// before reports whether a tenant comes first: who has less, and of those with the same, who
// has had nothing for longer.
func (t *tenant) before(other *tenant) bool {
	return cmp.Or(cmp.Compare(t.turns, other.turns), cmp.Compare(t.last, other.last), cmp.Compare(t.name, other.name)) < 0
}

// pump lets in who can come in.
func (g *Gate) pump() {
	for g.waiting > 0 {
		t := g.next()
		if t == nil {
			return
		}
		c := t.line[0]
		g.remove(c)
		c.verdict <- verdict{pass: g.admit(t)}
	}
}

func (g *Gate) admit(t *tenant) *Pass {
	g.turns++
	t.turns++
	g.grants++
	t.last = g.grants
	return &Pass{gate: g, of: t, began: time.Now()}
}

func (g *Gate) remove(c *caller) {
	t := c.of
	t.line = slices.DeleteFunc(t.line, func(other *caller) bool { return other == c })
	g.waiting--
}

// displace refuses the last caller of the tenant that has the most, for one of a tenant that
// has at least two less.
func (g *Gate) displace(newcomer *tenant) bool {
	var longest *tenant
	for _, t := range g.tenants {
		if longest == nil || cmp.Or(cmp.Compare(len(t.line), len(longest.line)), cmp.Compare(t.name, longest.name)) > 0 {
			longest = t
		}
	}
	if len(longest.line) < len(newcomer.line)+2 {
		return false
	}
	last := longest.line[len(longest.line)-1]
	g.remove(last)
	last.verdict <- verdict{err: g.refuse(longest, displaced, 0)}
	return true
}

// learn takes the time of one more turn into account.
func (g *Gate) learn(took time.Duration) {
	if g.typical == 0 {
		g.typical = took
		return
	}
	g.typical += (took - g.typical) / memory
}

// memory is how many turns the typical one is made of, about.
const memory = 16

// expected is how long one more caller of a tenant would wait, as far as is known: those who
// come in before it, a turn's time for as many at once as there may be.
func (g *Gate) expected(t *tenant) time.Duration {
	mine, before := len(t.line)+1, 1
	for _, other := range g.tenants {
		if other == t {
			before += len(t.line)
		} else {
			before += min(len(other.line), mine)
		}
	}
	wait := func(callers, places int) time.Duration {
		return time.Duration(float64(callers) / float64(places) * float64(g.typical))
	}
	return max(wait(before, g.limit()), wait(mine, g.share()))
}
