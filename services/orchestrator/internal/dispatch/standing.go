package dispatch

import (
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Authority decides for this dispatcher, and for the turns whose steps it gives to instances.
func (d *Dispatcher) Authority() *routing.Authority { return d.slots.authority }

// AgentCandidate is an agent as a candidate for a task: what its instances are together, as far as this
// orchestrator knows. Those that are left alone for a while are not available.
func (d *Dispatcher) AgentCandidate(agent string) choice.Candidate {
	list, _ := d.roster.List(agent)
	alone, silent := d.broken.of(agent), d.deaf.of(agent)
	var all []choice.Candidate
	for i, c := range d.slots.candidates(agent, list) {
		in, why := runOf(list.Instances[i]), selection.Available
		if alone[in] != nil {
			why = selection.BreakerOpen
		} else if err := silent[in]; err != nil && !refused(err) {
			why = selection.Unresponsive
		}
		all = append(all, choice.FromInstance(c, why))
	}
	for i, w := range list.Withheld {
		c := selection.Candidate{ID: w.ID, Incarnation: w.Incarnation}
		if i == 0 {
			c.Capabilities = list.WithheldCapabilities
		}
		all = append(all, choice.FromInstance(c, w.Why))
	}
	return choice.Combine(agent, all)
}
