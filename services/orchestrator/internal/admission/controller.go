// Package admission decides when a new turn may begin. It admits as many turns at once as there is capacity for,
// queues the next callers in a short, fair queue, and rejects the rest immediately. So admitted turns finish under any
// load. It does not know what a turn does.
//
// The queue is fair between tenants: a free permit goes to the waiting tenant with the fewest turns, and within a
// tenant to its first caller. When the queue is full, a caller of a tenant with a short queue displaces the last
// caller of the tenant with the longest one.
package admission

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Config has the limits of a Controller.
type Config struct {
	// MaxTurns returns how many turns may run at once (nil means no limit). It is called before each decision, and
	// must not block or use the Controller. A result below 1 counts as 1.
	MaxTurns func() int
	// MaxTurnsPerTenant limits the running turns of one tenant. With 0, a tenant may use all permits while it is
	// alone, and half of them while another tenant has a turn or waits.
	MaxTurnsPerTenant int
	MaxQueue          int           // limits how many callers may wait (0 means as many as turns may run)
	MaxQueueTime      time.Duration // limits how long a caller may wait (0 means no waiting)
	Meter             metric.Meter  // (nil disables metrics)
}

// Controller grants the permits of turns. Safe for concurrent use.
type Controller struct {
	cfg     Config
	metrics *metrics

	mu              sync.Mutex
	tenants         map[string]*tenant // tenants with turns or waiting callers, by name
	runningTurns    int                // number of running turns of all tenants
	waitingCallers  int
	grantCount      uint64
	typicalTurnTime time.Duration // moving average of the duration of turns (0 until one has ended)
	closeErr        error         // why the controller is closed (nil while it is open)
}

// tenant holds the counts and the queue of one tenant.
type tenant struct {
	name             string
	runningTurns     int
	childrenByParent map[string]int // number of running child turns, by parent trace
	queue            []*caller
	lastGrant        uint64 // value of grantCount at its latest grant
}

// caller is a call of Admit that waits in the queue.
type caller struct {
	tenant *tenant
	result chan admitResult // has capacity 1
}

type admitResult struct {
	permit *Permit
	err    error
}

// New returns an open Controller.
func New(cfg Config) (*Controller, error) {
	g := &Controller{cfg: cfg, tenants: map[string]*tenant{}}
	var err error
	g.metrics, err = newMetrics(cfg.Meter, g)
	return g, err
}

// Permit lets one turn run. The caller releases it when the turn has ended.
type Permit struct {
	controller  *Controller
	tenant      *tenant // nil after Release
	parentTrace string  // trace that waits for this turn (empty for none, and after ReleaseChild)
	startedAt   time.Time
}

// TryAdmit returns a permit if one is free and no queued caller could take it.
func (g *Controller) TryAdmit(of string) (*Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closeErr != nil || g.waitingCallers > 0 && g.nextTenant() != nil {
		return nil, false
	}
	t := g.getTenant(of)
	defer g.dropIdleTenant(t)
	if g.runningTurns >= g.turnLimit() || t.runningTurns >= g.tenantLimit() {
		return nil, false
	}
	g.metrics.recordAdmitted(t.name, admittedAtOnce, 0)
	return g.grantPermit(t), true
}

// ForceAdmit returns a permit regardless of the limits. It is for a turn that continues work begun earlier. The
// permit counts like any other.
func (g *Controller) ForceAdmit(of string) *Permit {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.getTenant(of)
	g.metrics.recordAdmitted(t.name, admittedByForce, 0)
	return g.grantPermit(t)
}

// Admit waits for a permit until the given time (the zero time means that the caller has no deadline). It rejects
// the caller immediately if the expected wait is too long. It fails with overloaded and a retry delay, with the
// cause of ctx, or with the error given to Close.
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
	var v admitResult
	select {
	case v = <-c.result:
	case <-patience.C:
		v = g.cancelWait(c, func() error { return g.newRejection(c.tenant, waitExpired, within) })
	case <-ctx.Done():
		v = g.cancelWait(c, func() error { return context.Cause(ctx) })
		if v.permit != nil { // it was admitted at the same moment
			v.permit.Release(false)
			v = admitResult{err: context.Cause(ctx)}
		}
	}
	if v.permit != nil {
		g.metrics.recordAdmitted(of, admittedFromQueue, time.Since(began))
	}
	return v.permit, v.err
}

// enqueue adds a caller to the queue and returns how long the caller may wait.
func (g *Controller) enqueue(of string, until time.Time) (*caller, time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closeErr != nil {
		return nil, 0, g.closeErr
	}
	t := g.getTenant(of)
	defer g.dropIdleTenant(t)
	within := g.cfg.MaxQueueTime
	if !until.IsZero() {
		within = min(within, time.Until(until)-workFactor*g.typicalTurnTime)
	}
	if g.expectedWait(t) > within || within <= 0 {
		return nil, 0, g.newRejection(t, waitTooLong, within)
	}
	if g.waitingCallers >= g.queueLimit() && !g.displaceCaller(t) {
		return nil, 0, g.newRejection(t, queueFull, within)
	}
	c := &caller{tenant: t, result: make(chan admitResult, 1)}
	t.queue = append(t.queue, c)
	g.waitingCallers++
	g.admitQueued() // a permit may have become free since TryAdmit
	return c, within, nil
}

// workFactor defines how much time an admitted caller must have left: this factor times the typical duration of a
// turn. Many turns take longer than the average.
const workFactor = 2

// cancelWait removes a caller from the queue, unless it was admitted or rejected in the meantime.
func (g *Controller) cancelWait(c *caller, why func() error) admitResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case v := <-c.result:
		return v
	default:
	}
	g.removeCaller(c)
	defer g.dropIdleTenant(c.tenant)
	return admitResult{err: why()}
}

// Release returns the permit to the controller. Later calls do nothing. ran reports whether a turn ran. Only then
// does its duration count for the expected wait.
func (p *Permit) Release(ran bool) {
	g := p.controller
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.tenant == nil {
		return
	}
	p.releaseChildLocked()
	p.tenant.runningTurns--
	g.runningTurns--
	if ran {
		g.recordDuration(time.Since(p.startedAt))
	}
	g.dropIdleTenant(p.tenant)
	p.tenant = nil
	g.admitQueued()
}

// AdmitWaiting admits queued callers while there is capacity. Call it when Config.MaxTurns returns more than
// before.
func (g *Controller) AdmitWaiting() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitQueued()
}

// Waiting returns how many callers are queued.
func (g *Controller) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waitingCallers
}

// Close rejects all queued and all later callers of Admit with err. ForceAdmit and AdmitChild still return
// permits.
func (g *Controller) Close(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeErr = why
	for _, t := range g.tenants {
		for _, c := range t.queue {
			c.result <- admitResult{err: g.closeErr}
		}
		g.waitingCallers -= len(t.queue)
		t.queue = nil
		g.dropIdleTenant(t)
	}
}
