package admission

import (
	"github.com/troupe-dev/troupe/pkg/failure"
)

// AdmitChild lets a turn in that another one waits for, whatever there is: if it waited, so would that one,
// and keep its place. Above names the other, within the tenant, and most is how many turns may run
// below it at once. Beyond that it fails with overloaded, which names the limit. It counts as any other.
func (g *Controller) AdmitChild(of, above string, most int64) (*Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenant(of)
	defer g.forget(t)
	if int64(t.children[above]) >= most {
		g.metrics.rejected(t.name, fanOut)
		return nil, failure.Newf(failure.Overloaded, "admission",
			"no more than %d turns may run here at once below that of trace %s, by the fanOut of its budget. Send the same request again when one of them has ended", most, above).
			WithRetryAfter(defaultRetryDelay).With("full", string(fanOut))
	}
	if t.children == nil {
		t.children = map[string]int{}
	}
	t.children[above]++
	g.metrics.admitted(t.name, forced, 0)
	p := g.grant(t)
	p.parent = above
	return p, nil
}

// ReleaseChild says that the result of the turn is about to be told: from then on the turn above may ask for
// another in its stead. End says so too.
func (p *Permit) ReleaseChild() {
	p.controller.mu.Lock()
	defer p.controller.mu.Unlock()
	p.releaseChild()
}

// releaseChild is called with the lock held.
func (p *Permit) releaseChild() {
	if p.tenant == nil || p.parent == "" {
		return
	}
	if p.tenant.children[p.parent]--; p.tenant.children[p.parent] == 0 {
		delete(p.tenant.children, p.parent)
	}
	p.parent = ""
}
