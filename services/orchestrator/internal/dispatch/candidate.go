package dispatch

import (
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/breakers"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// AgentCandidate returns an agent as a routing candidate. It combines the instances that this orchestrator knows.
// Instances in backoff count as not available.
func (d *Dispatcher) AgentCandidate(agent string) choice.Candidate {
	list, _ := d.instances.List(agent)
	failures, backoffs := d.breakers.Failures(agent), d.backoffs.Errors(agent)
	var all []choice.Candidate
	for i, c := range d.queue.Candidates(agent, list) {
		in, why := instances.IncarnationOf(list.Instances[i]), selection.Available
		if failures[in].Status != breakers.Closed {
			why = selection.BreakerOpen
		} else if err := backoffs[in]; err != nil && !isRejection(err) {
			why = selection.Unresponsive
		}
		all = append(all, choice.CandidateFromInstance(c, why))
	}
	for i, w := range list.Withheld {
		c := selection.Candidate{ID: w.ID, Incarnation: w.Incarnation}
		if i == 0 {
			c.Capabilities = list.WithheldCapabilities
		}
		all = append(all, choice.CandidateFromInstance(c, w.Availability))
	}
	return choice.CombineInstances(agent, all)
}
