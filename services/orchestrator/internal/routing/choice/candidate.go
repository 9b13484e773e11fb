package choice

import (
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// FromInstance returns an instance of an agent as a candidate. out says why it cannot take a step (Available
// when it can, or when it is only full, because a step can wait for it).
func FromInstance(c selection.Candidate, out selection.Availability) Candidate {
	return Candidate{
		ID: c.ID, Name: c.ID, Type: Worker, Capabilities: c.Capabilities,
		Metadata:  map[string]string{"version": c.Version, "incarnation": strconv.FormatInt(c.Incarnation, 10)},
		Available: out == selection.Available, Availability: out,
		Load: min(1, float64(max(0, c.InFlight))/float64(max(1, c.Capacity))),
	}
}

// Combine returns an agent as a candidate: its instances together. The agent has the capabilities of all
// available instances and their average load. If no instance is available, neither is the agent, for
// the reason of the first instance, and it has the capabilities of all of them.
func Combine(agent string, instances []Candidate) Candidate {
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
