package dispatch

import (
	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// IdentityError is why whoever is at the address of an instance is not a worker of its agent, as the
// last connection found; empty: it is, or nobody has connected.
func (p *Pool) IdentityError(in registry.Instance) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.impostors[place{in.Address, in.Agent}]
}

// doubt notes, and says in the audit log once, that whoever is registered at a place does not
// prove to be of the agent (S16).
func (p *Pool) doubt(at place, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.impostors[at]; !known {
		p.telemetry.Audit.Record(audit.Entry{
			Kind: audit.Denied, Actor: "worker at " + at.address, Action: "be a worker of agent " + at.agent, Object: at.agent,
			Result: string(failure.PolicySecurity), Facts: map[string]string{"why": why.Error()},
		})
	}
	p.impostors[at] = why.Error()
}

// proved forgets that.
func (p *Pool) proved(at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.impostors, at)
}
