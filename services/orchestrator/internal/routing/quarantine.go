package routing

import (
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry"
)

// AwaitDesires keeps steps from everybody until it is known what operators want: from the
// registry, or from the snapshot of an orchestrator that knew. It is called before the roster is
// filled.
func (r *Roster) AwaitDesires() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unheard = true
}

// Heard reports whether the registry has told what operators want. A snapshot may know less.
func (r *Roster) Heard() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}

// Quarantine is what shuts an agent out (S18); false: nothing does.
func (r *Roster) Quarantine(agent string) (registry.Desire, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, out := r.quarantined[agent]
	return d, out
}

// Quarantines are the agents that are shut out, with why.
func (r *Roster) Quarantines() []registry.Desire {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []registry.Desire
	for _, d := range r.quarantined {
		all = append(all, d)
	}
	return all
}

// Shut returns a channel that is closed while the agent is shut out, or is once it will be.
func (r *Roster) Shut(agent string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shutting(agent)
}

// Barred refuses the calls of workers whose agent is shut out, whatever they call.
func (r *Roster) Barred(p identity.Principal, _ string) error {
	if p.Role != identity.Worker {
		return nil
	}
	if d, out := r.Quarantine(p.Name); out {
		return d.Refusal("call")
	}
	return nil
}

// Release lets an agent take steps again, before the registry tells it to everybody.
func (r *Roster) Release(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.desires, registry.Whole(agent))
	r.tell()
}

// shutting is called with the lock held.
func (r *Roster) shutting(agent string) chan struct{} {
	if r.shut[agent] == nil {
		r.shut[agent] = make(chan struct{})
	}
	return r.shut[agent]
}

// shutOut is called with the lock held, after each change. It tells whoever waits of agents
// that are shut out now.
func (r *Roster) shutOut() {
	before := r.quarantined
	r.quarantined = registry.Quarantined(r.desires)
	for agent := range r.quarantined {
		if _, out := before[agent]; !out {
			close(r.shutting(agent))
		}
	}
	for agent := range before {
		if _, out := r.quarantined[agent]; !out {
			delete(r.shut, agent)
		}
	}
}
