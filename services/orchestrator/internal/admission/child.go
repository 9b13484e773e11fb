package admission

import (
	"github.com/troupe-dev/troupe/pkg/failure"
)

// AdmitChild returns a permit for a turn that a parent turn waits for. It never queues, because the parent would
// wait while it keeps its own permit. parent is the parent's trace id. AdmitChild fails with overloaded if the
// parent already has most running children. The permit counts like any other.
func (g *Controller) AdmitChild(tenant, parent string, most int64) (*Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.getTenant(tenant)
	defer g.dropIdleTenant(t)
	if int64(t.childrenByParent[parent]) >= most {
		g.metrics.recordRejected(t.name, fanOutReached)
		return nil, failure.Newf(failure.Overloaded, "admission",
			"no more than %d child turns of trace %s may run at once (fanOut of its budget). "+
				"Send the same request again when one of them has ended", most, parent).
			WithRetryAfter(defaultRetryDelay).With("full", string(fanOutReached))
	}
	if t.childrenByParent == nil {
		t.childrenByParent = map[string]int{}
	}
	t.childrenByParent[parent]++
	g.metrics.recordAdmitted(t.name, admittedByForce, 0)
	p := g.grantPermit(t)
	p.parentTrace = parent
	return p, nil
}

// ReleaseChild stops counting the turn as a child of its parent. Call it before the result is published, because
// the parent may then start another child. Release calls it, too.
func (p *Permit) ReleaseChild() {
	p.controller.mu.Lock()
	defer p.controller.mu.Unlock()
	p.releaseChildLocked()
}

// releaseChildLocked is ReleaseChild for a caller that holds the lock.
func (p *Permit) releaseChildLocked() {
	if p.tenant == nil || p.parentTrace == "" {
		return
	}
	if p.tenant.childrenByParent[p.parentTrace]--; p.tenant.childrenByParent[p.parentTrace] == 0 {
		delete(p.tenant.childrenByParent, p.parentTrace)
	}
	p.parentTrace = ""
}
