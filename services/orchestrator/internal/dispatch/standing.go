package dispatch

import (
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/balance"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
)

// Authority decides for this dispatcher, and for the turns whose steps it gives to instances.
func (d *Dispatcher) Authority() *routing.Authority { return d.slots.authority }

// Standing is an agent as a candidate for a task: what its instances are together, as far as this
// orchestrator knows. Those that are left alone for a while are not available.
func (d *Dispatcher) Standing(agent string) choice.Candidate {
	list, _ := d.roster.List(agent)
	alone, silent := d.broken.of(agent), d.deaf.of(agent)
	var all []choice.Candidate
	for i, c := range d.slots.candidates(agent, list) {
		in, why := runOf(list.Instances[i]), balance.Available
		if alone[in] != nil {
			why = balance.Broken
		} else if err := silent[in]; err != nil && !refused(err) {
			why = balance.Silent
		}
		all = append(all, choice.Instance(c, why))
	}
	for i, w := range list.Withheld {
		c := balance.Candidate{ID: w.ID, Incarnation: w.Incarnation}
		if i == 0 {
			c.Capabilities = list.Asleep
		}
		all = append(all, choice.Instance(c, w.Why))
	}
	return choice.Together(agent, all)
}
