package connection

import (
	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// IdentityError returns why the process at the address of an instance is not a worker of its agent, according
// to the last connection (empty when it is, or when there was no connection).
func (p *Pool) IdentityError(in registry.Instance) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unproven[endpoint{in.Address, in.Agent}]
}

// recordUnproven records that the process at an endpoint does not prove to be a worker of the agent
// (S16). The audit log gets this once.
func (p *Pool) recordUnproven(at endpoint, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, recorded := p.unproven[at]; !recorded {
		p.telemetry.Audit.Record(audit.Entry{
			Kind: audit.Denied, Actor: "worker at " + at.address, Action: "be a worker of agent " + at.agent, Object: at.agent,
			Result: string(failure.PolicySecurity), Facts: map[string]string{"why": why.Error()},
		})
	}
	p.unproven[at] = why.Error()
}

// recordProven removes the record of recordUnproven, because the process has now proved its agent.
func (p *Pool) recordProven(at endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unproven, at)
}
