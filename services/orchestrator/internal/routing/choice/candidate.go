package choice

import (
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// CandidateFromInstance returns an instance as a candidate for a task. out says why the instance cannot accept a
// step. It is Available also for a full instance, because a step can wait for a slot.
func CandidateFromInstance(c selection.Candidate, out selection.Availability) Candidate {
	return Candidate{
		ID: c.ID, Name: c.ID, Type: Worker, Capabilities: c.Capabilities,
		Metadata:  map[string]string{"version": c.Version, "incarnation": strconv.FormatInt(c.Incarnation, 10)},
		Available: out == selection.Available, Availability: out,
		Load: min(1, float64(max(0, c.InFlight))/float64(max(1, c.Capacity))),
	}
}

// CombineInstances combines the instances of an agent into one candidate. The agent has the capabilities of all
// available instances and their average load. If no instance is available, the agent is unavailable for the reason
// of the first instance, and has the capabilities of all instances.
func CombineInstances(agent string, instances []Candidate) Candidate {
	all := Candidate{ID: agent, Name: agent, Type: Agent, Availability: selection.Absent}
	n := 0
	for _, c := range instances {
		if c.Available {
			n++
			all.Load += c.Load
		}
	}
	all.Available = n > 0
	all.Load /= float64(max(1, n))
	all.Metadata = map[string]string{"instances": strconv.Itoa(n)}
	for i, c := range instances {
		if i == 0 && n == 0 {
			all.Availability = c.Availability
		}
		if c.Available || n == 0 {
			all.Capabilities = append(all.Capabilities, c.Capabilities...)
		}
	}
	if all.Available {
		all.Availability = selection.Available
	}
	slices.Sort(all.Capabilities)
	all.Capabilities = slices.Compact(all.Capabilities)
	return all
}
