// Package admission decides when a new turn may begin. It is a gate that lets through as many
// turns at once as there is work for, has the next ones wait in a short, fair queue, and
// refuses the rest at once: what was let through ends, however much is asked for. It knows
// nothing of what a turn is.
//
// Fair means: a place that becomes free goes to the tenant that has the fewest turns of those
// who wait, and within a tenant to whoever came first. When the queue is full, room for a
// tenant with few callers in it is made by the last caller of the tenant with the most.
package admission

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Config is what a gate works with.
type Config struct {
	// Turns is how many turns there may be at once, asked whenever somebody may come in. It
	// must not wait, nor use the gate. What gives less than 1 gives 1; nil: any number.
	Turns func() int
	// PerTenant is how many of them one tenant may have. 0: all of them while it is alone,
	// and half of them as soon as another has a turn or waits.
	PerTenant int
	Queue     int           // callers that may wait; 0: as many as there may be turns at once
	QueueTime time.Duration // for how long one may wait at most; 0: nobody waits
	Meter     metric.Meter  // nil: nothing is counted
}

// Gate lets turns begin. Safe for concurrent use.
type Gate struct {
	cfg   Config
	count *count

	mu      sync.Mutex
	tenants map[string]*tenant // that have turns, or callers that wait
	turns   int                // at once, of all
	waiting int
	grants  uint64
	typical time.Duration // that turns took of late, on average; 0: none has ended
	closed  error         // why nobody is let in any more
}

// tenant is who shares the gate with others.
type tenant struct {
	name  string
	turns int
	below map[string]int // turns that others wait for, by those
	line  []*caller
	last  uint64 // grant that it had last
}

// caller waits.
type caller struct {
	of      *tenant
	verdict chan verdict // of 1
}

type verdict struct {
	pass *Pass
	err  error
}

// New returns an open gate.
func New(cfg Config) (*Gate, error) {
	g := &Gate{cfg: cfg, tenants: map[string]*tenant{}}
	var err error
	g.count, err = newCount(cfg.Meter, g)
	return g, err
}

// Pass is the place of one turn. It is ended once the turn has.
type Pass struct {
	gate  *Gate
	of    *tenant // nil once it was ended
	above string  // what waits for the turn; empty: nothing, or its result was told
	began time.Time
}

// Try lets a turn in if that can be done at once, and nobody waits who could come in before.
func (g *Gate) Try(of string) (*Pass, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil || g.waiting > 0 && g.next() != nil {
		return nil, false
	}
	t := g.tenant(of)
	defer g.forget(t)
	if g.turns >= g.limit() || t.turns >= g.share() {
		return nil, false
	}
	g.count.admitted(t.name, atOnce, 0)
	return g.admit(t), true
}

// Force lets a turn in whatever there is: one that goes on with what was begun before. It
// counts as any other.
func (g *Gate) Force(of string) *Pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenant(of)
	g.count.admitted(t.name, forced, 0)
	return g.admit(t)
}

// Enter lets a turn in as soon as that can be done, for a caller that has no longer than
// until; the zero time is any time. Who would wait in vain is refused at once: fails with
// overloaded, which says when to ask again, and with why ctx ended, or with what the gate was
// closed with.
func (g *Gate) Enter(ctx context.Context, of string, until time.Time) (*Pass, error) {
	if p, ok := g.Try(of); ok {
		return p, nil
	}
	began := time.Now()
	c, within, err := g.join(of, until)
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(within)
	defer patience.Stop()
	var v verdict
	select {
	case v = <-c.verdict:
	case <-patience.C:
		v = g.leave(c, func() error { return g.refuse(c.of, tooSlow, within) })
	case <-ctx.Done():
		v = g.leave(c, func() error { return context.Cause(ctx) })
		if v.pass != nil { // it came in the same moment
			v.pass.End(false)
			v = verdict{err: context.Cause(ctx)}
		}
	}
	if v.pass != nil {
		g.count.admitted(of, queued, time.Since(began))
	}
	return v.pass, v.err
}

// join has a caller wait, and says for how long.
func (g *Gate) join(of string, until time.Time) (*caller, time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return nil, 0, g.closed
	}
	t := g.tenant(of)
	defer g.forget(t)
	within := g.cfg.QueueTime
	if !until.IsZero() {
		within = min(within, time.Until(until)-workFactor*g.typical)
	}
	if g.expected(t) > within || within <= 0 {
		return nil, 0, g.refuse(t, tooLong, within)
	}
	if g.waiting >= g.room() && !g.displace(t) {
		return nil, 0, g.refuse(t, queueFull, within)
	}
	c := &caller{of: t, verdict: make(chan verdict, 1)}
	t.line = append(t.line, c)
	g.waiting++
	g.pump() // a place became free since it was tried
	return c, within, nil
}

// workFactor is how many times the typical turn a caller must have left when it comes in:
// half of the turns take longer than that.
const workFactor = 2

// leave ends a caller's wait with an error, unless it has its verdict.
func (g *Gate) leave(c *caller, why func() error) verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case v := <-c.verdict:
		return v
	default:
	}
	g.remove(c)
	defer g.forget(c.of)
	return verdict{err: why()}
}

// End gives the place back, once. Ran says whether there was a turn, which tells the gate how
// long turns take.
func (p *Pass) End(ran bool) {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.of == nil {
		return
	}
	p.tell()
	p.of.turns--
	g.turns--
	if ran {
		g.learn(time.Since(p.began))
	}
	g.forget(p.of)
	p.of = nil
	g.pump()
}

// Look lets in who can come in by now: call it when Turns gives more than before.
func (g *Gate) Look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pump()
}

// Waiting is how many callers wait.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// Close refuses all who wait, and all who come, with the error. Those whom Force lets in come
// in.
func (g *Gate) Close(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = why
	for _, t := range g.tenants {
		for _, c := range t.line {
			c.verdict <- verdict{err: g.closed}
		}
		g.waiting -= len(t.line)
		t.line = nil
		g.forget(t)
	}
}
