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

// Controller lets turns begin. Safe for concurrent use.
type Controller struct {
	cfg     Config
	metrics *metrics

	mu          sync.Mutex
	tenants     map[string]*tenant // that have turns, or callers that wait
	turns       int                // at once, of all
	waiting     int
	grants      uint64
	typicalTime time.Duration // that turns took of late, on average; 0: none has ended
	closeErr    error         // why nobody is let in any more
}

// tenant is who shares the gate with others.
type tenant struct {
	name      string
	turns     int
	children  map[string]int // turns that others wait for, by those
	queue     []*caller
	lastGrant uint64 // grant that it had last
}

// caller waits.
type caller struct {
	tenant  *tenant
	verdict chan verdict // of 1
}

type verdict struct {
	permit *Permit
	err    error
}

// New returns an open gate.
func New(cfg Config) (*Controller, error) {
	g := &Controller{cfg: cfg, tenants: map[string]*tenant{}}
	var err error
	g.metrics, err = newMetrics(cfg.Meter, g)
	return g, err
}

// Permit is the place of one turn. It is ended once the turn has.
type Permit struct {
	controller *Controller
	tenant     *tenant // nil once it was ended
	parent     string  // what waits for the turn; empty: nothing, or its result was told
	began      time.Time
}

// TryAdmit lets a turn in if that can be done at once, and nobody waits who could come in before.
func (g *Controller) TryAdmit(of string) (*Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closeErr != nil || g.waiting > 0 && g.nextTenant() != nil {
		return nil, false
	}
	t := g.tenant(of)
	defer g.forget(t)
	if g.turns >= g.limit() || t.turns >= g.tenantLimit() {
		return nil, false
	}
	g.metrics.admitted(t.name, atOnce, 0)
	return g.grant(t), true
}

// ForceAdmit lets a turn in whatever there is: one that goes on with what was begun before. It
// counts as any other.
func (g *Controller) ForceAdmit(of string) *Permit {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenant(of)
	g.metrics.admitted(t.name, forced, 0)
	return g.grant(t)
}

// Admit lets a turn in as soon as that can be done, for a caller that has no longer than
// until; the zero time is any time. Who would wait in vain is refused at once: fails with
// overloaded, which says when to ask again, and with why ctx ended, or with what the gate was
// closed with.
func (g *Controller) Admit(ctx context.Context, of string, until time.Time) (*Permit, error) {
	if p, ok := g.TryAdmit(of); ok {
		return p, nil
	}
	began := time.Now()
	c, within, err := g.enqueue(of, until)
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(within)
	defer patience.Stop()
	var v verdict
	select {
	case v = <-c.verdict:
	case <-patience.C:
		v = g.abandon(c, func() error { return g.reject(c.tenant, tooSlow, within) })
	case <-ctx.Done():
		v = g.abandon(c, func() error { return context.Cause(ctx) })
		if v.permit != nil { // it came in the same moment
			v.permit.Release(false)
			v = verdict{err: context.Cause(ctx)}
		}
	}
	if v.permit != nil {
		g.metrics.admitted(of, queued, time.Since(began))
	}
	return v.permit, v.err
}

// enqueue has a caller wait, and says for how long.
func (g *Controller) enqueue(of string, until time.Time) (*caller, time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closeErr != nil {
		return nil, 0, g.closeErr
	}
	t := g.tenant(of)
	defer g.forget(t)
	within := g.cfg.QueueTime
	if !until.IsZero() {
		within = min(within, time.Until(until)-workFactor*g.typicalTime)
	}
	if g.expectedWait(t) > within || within <= 0 {
		return nil, 0, g.reject(t, tooLong, within)
	}
	if g.waiting >= g.queueLimit() && !g.displace(t) {
		return nil, 0, g.reject(t, queueFull, within)
	}
	c := &caller{tenant: t, verdict: make(chan verdict, 1)}
	t.queue = append(t.queue, c)
	g.waiting++
	g.admitQueued() // a place became free since it was tried
	return c, within, nil
}

// workFactor is how many times the typical turn a caller must have left when it comes in:
// half of the turns take longer than that.
const workFactor = 2

// abandon ends a caller's wait with an error, unless it has its verdict.
func (g *Controller) abandon(c *caller, why func() error) verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case v := <-c.verdict:
		return v
	default:
	}
	g.remove(c)
	defer g.forget(c.tenant)
	return verdict{err: why()}
}

// Release gives the place back, once. Ran says whether there was a turn, which tells the gate how
// long turns take.
func (p *Permit) Release(ran bool) {
	g := p.controller
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.tenant == nil {
		return
	}
	p.releaseChild()
	p.tenant.turns--
	g.turns--
	if ran {
		g.recordDuration(time.Since(p.began))
	}
	g.forget(p.tenant)
	p.tenant = nil
	g.admitQueued()
}

// AdmitWaiting lets in who can come in by now: call it when Turns gives more than before.
func (g *Controller) AdmitWaiting() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitQueued()
}

// Waiting is how many callers wait.
func (g *Controller) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// Close refuses all who wait, and all who come, with the error. Those whom Force lets in come
// in.
func (g *Controller) Close(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeErr = why
	for _, t := range g.tenants {
		for _, c := range t.queue {
			c.verdict <- verdict{err: g.closeErr}
		}
		g.waiting -= len(t.queue)
		t.queue = nil
		g.forget(t)
	}
}
