package choice

import (
	"cmp"
	"slices"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Decide chooses among the available candidates of the input. The strategy orders them. Candidates that are equal
// for the strategy keep the order of their declaration.
func Decide(in Input) Decision {
	in.Strategy = cmp.Or(in.Strategy, selection.Capability)
	d := Decision{Type: in.Type, Strategy: in.Strategy, Input: in}
	var free []Candidate
	for _, c := range in.Candidates {
		if why := in.availability(c); why != selection.Available {
			d.Rejected = append(d.Rejected, Rejected{c.ID, why})
			continue
		}
		free = append(free, c)
	}
	for _, name := range in.Names {
		if in.Strategy == selection.Manual && in.FindCandidate(name).ID == "" {
			d.Rejected = append(d.Rejected, Rejected{name, selection.Absent})
		}
	}
	in.sortAvailable(free)
	for i, c := range free {
		if i == 0 {
			d.Target = c.ID
		} else {
			d.Alternatives = append(d.Alternatives, c.ID)
		}
	}
	if len(free) > 0 {
		d.IsStandIn = in.isStandIn(free[0])
		d.Confidence = in.confidence(free, d.IsStandIn)
	}
	d.Reason = in.describeDecision(free, d)
	d.Rejected = d.Rejected[:min(len(d.Rejected), maxRejected)]
	return d
}

// availability returns why a candidate cannot be chosen (Available if it can).
func (in Input) availability(c Candidate) selection.Availability {
	switch {
	case !c.Available:
		return c.Availability
	case in.Strategy == selection.Manual && !slices.Contains(in.Names, c.ID):
		return selection.NotNamed
	case in.Strategy == selection.Capability && len(in.Needs) > 0 && in.countMetNeeds(c) == 0:
		return selection.Unfit
	default:
		return selection.Available
	}
}

// countMetNeeds returns how many of the needed capabilities a candidate has.
func (in Input) countMetNeeds(c Candidate) (n int) {
	for _, need := range in.Needs {
		if slices.Contains(c.Capabilities, need) {
			n++
		}
	}
	return n
}

// sortAvailable sorts the available candidates by the preference of the strategy.
func (in Input) sortAvailable(free []Candidate) {
	if n := uint64(len(free)); n > 0 && (in.Strategy == selection.RoundRobin || in.Strategy == selection.LoadBalanced) {
		turn := int(in.Counter % n) // decides also among candidates with the same load
		copy(free, append(slices.Clone(free[turn:]), free[:turn]...))
	}
	slices.SortStableFunc(free, in.compare)
}

// compare returns a negative number if the strategy prefers a to b. For round robin, it treats all candidates as
// equal.
func (in Input) compare(a, b Candidate) int {
	switch in.Strategy {
	case selection.Capability:
		return cmp.Compare(in.countMetNeeds(b), in.countMetNeeds(a))
	case selection.LoadBalanced:
		return cmp.Compare(a.Load, b.Load)
	case selection.Priority:
		return cmp.Compare(b.Priority, a.Priority)
	case selection.Manual:
		return cmp.Compare(slices.Index(in.Names, a.ID), slices.Index(in.Names, b.ID))
	default: // round robin
		return 0
	}
}

// isStandIn reports whether the strategy would prefer an unavailable candidate to the chosen one. Strategies by
// load and round robin have no such preference.
func (in Input) isStandIn(chosen Candidate) bool {
	return in.Strategy != selection.LoadBalanced && slices.ContainsFunc(in.Candidates, func(c Candidate) bool {
		if !c.Available {
			c.Available = true
			return in.availability(c) == selection.Available && in.compare(c, chosen) < 0
		}
		return false
	})
}

// confidence returns the confidence in the decision, from 0 to 1 (OC-15, OC-17).
func (in Input) confidence(free []Candidate, standIn bool) float64 {
	switch {
	case in.Strategy == selection.Capability && len(in.Needs) == 0:
		return selection.GuessedConfidence
	case in.Strategy == selection.Capability:
		return float64(in.countMetNeeds(free[0])) / float64(len(in.Needs))
	case standIn:
		return selection.GuessedConfidence
	case len(free) == 1:
		return selection.CertainConfidence
	case in.Strategy == selection.RoundRobin:
		return selection.GuessedConfidence
	case in.Strategy == selection.LoadBalanced:
		return selection.InformedConfidence
	default:
		return selection.CertainConfidence
	}
}
