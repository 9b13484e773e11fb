package admission

import (
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Below lets a turn in that another one waits for, whatever there is: if it waited, so would that one,
// and keep its place. Above names the other, within the tenant, and most is how many turns may run
// below it at once. Beyond that it fails with overloaded, which names the limit. It counts as any other.
func (g *Gate) Below(of, above string, most int64) (*Pass, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenant(of)
	defer g.forget(t)
	if int64(t.below[above]) >= most {
		g.count.refused(t.name, fanOut)
		return nil, failure.Newf(failure.Overloaded, "admission",
			"no more than %d turns may run here at once below that of trace %s, by the fanOut of its budget. Send the same request again when one of them has ended", most, above).
			WithRetryAfter(unknown).With("full", string(fanOut))
	}
	if t.below == nil {
		t.below = map[string]int{}
	}
	t.below[above]++
	g.count.admitted(t.name, forced, 0)
	p := g.admit(t)
	p.above = above
	return p, nil
}

// Tell says that the result of the turn is about to be told: from then on the turn above may ask for
// another in its stead. End says so too.
func (p *Pass) Tell() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.tell()
}

// tell is called with the lock held.
func (p *Pass) tell() {
	if p.of == nil || p.above == "" {
		return
	}
	if p.of.below[p.above]--; p.of.below[p.above] == 0 {
		delete(p.of.below, p.above)
	}
	p.above = ""
}
