package connection

import (
	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// IdentityError returns why the process at the address of an instance is not a worker of its agent. It describes
// the last connection (empty if the identity was proven, or if there was no connection).
func (p *Pool) IdentityError(in registry.Instance) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identityErrors[endpoint{in.Address, in.Agent}]
}

// recordIdentityError records that the process at an endpoint failed to prove that it is a worker of the agent
// (guarantee S16). The audit log gets one entry per endpoint.
func (p *Pool) recordIdentityError(at endpoint, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, recorded := p.identityErrors[at]; !recorded {
		p.telemetry.Audit.Record(audit.Entry{
			Kind: audit.Denied, Actor: "worker at " + at.address, Action: "be a worker of agent " + at.agent, Object: at.agent,
			Result: string(failure.PolicySecurity), Facts: map[string]string{"why": why.Error()},
		})
	}
	p.identityErrors[at] = why.Error()
}

// clearIdentityError removes what recordIdentityError recorded, because the process has proven its agent now.
func (p *Pool) clearIdentityError(at endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.identityErrors, at)
}
