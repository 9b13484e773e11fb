package choice

import (
	"cmp"
	"slices"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/balance"
)

// Decide says who is chosen. Those that are not available are left out first, then the strategy
// puts the others in order; of equals the one that is declared first comes first.
func Decide(in Input) Decision {
	in.Strategy = cmp.Or(in.Strategy, balance.Capability)
	d := Decision{Type: in.Type, Strategy: in.Strategy, Input: in}
	var free []Candidate
	for _, c := range in.Candidates {
		if why := in.why(c); why != balance.Available {
			d.Rejected = append(d.Rejected, Rejected{c.ID, why})
			continue
		}
		free = append(free, c)
	}
	for _, name := range in.Names {
		if in.Strategy == balance.Manual && in.Find(name).ID == "" {
			d.Rejected = append(d.Rejected, Rejected{name, balance.Absent})
		}
	}
	in.order(free)
	for i, c := range free {
		if i == 0 {
			d.Target = c.ID
		} else {
			d.Alternatives = append(d.Alternatives, c.ID)
		}
	}
	if len(free) > 0 {
		d.StandIn = in.missed(free[0])
		d.Confidence = in.confidence(free, d.StandIn)
	}
	d.Reason = in.reason(free, d)
	d.Rejected = d.Rejected[:min(len(d.Rejected), maxRejected)]
	return d
}

// why is why a candidate cannot be chosen.
func (in Input) why(c Candidate) balance.Why {
	switch {
	case !c.Available:
		return c.Why
	case in.Strategy == balance.Manual && !slices.Contains(in.Names, c.ID):
		return balance.NotNamed
	case in.Strategy == balance.Capability && len(in.Constraints) > 0 && in.meets(c) == 0:
		return balance.Unfit
	default:
		return balance.Available
	}
}

// meets is how much of what is needed a candidate has.
func (in Input) meets(c Candidate) (n int) {
	for _, need := range in.Constraints {
		if slices.Contains(c.Capabilities, need) {
			n++
		}
	}
	return n
}

// order puts those that are available in the order in which the strategy wants them.
func (in Input) order(free []Candidate) {
	if n := uint64(len(free)); n > 0 && (in.Strategy == balance.RoundRobin || in.Strategy == balance.LoadBalanced) {
		turn := int(in.Counter % n) // also among those that are equally busy
		copy(free, append(slices.Clone(free[turn:]), free[:turn]...))
	}
	slices.SortStableFunc(free, in.compare)
}

// compare is negative when the strategy wants a before b, whoever's turn it is.
func (in Input) compare(a, b Candidate) int {
	switch in.Strategy {
	case balance.Capability:
		return cmp.Compare(in.meets(b), in.meets(a))
	case balance.LoadBalanced:
		return cmp.Compare(a.Load, b.Load)
	case balance.Priority:
		return cmp.Compare(b.Priority, a.Priority)
	case balance.Manual:
		return cmp.Compare(slices.Index(in.Names, a.ID), slices.Index(in.Names, b.ID))
	default: // whose turn it is
		return 0
	}
}

// missed reports whether one that is not available would have come before the one that is chosen.
// That it is busy is no reason to want it less, and that it is one's turn no reason to want it more.
func (in Input) missed(chosen Candidate) bool {
	return in.Strategy != balance.LoadBalanced && slices.ContainsFunc(in.Candidates, func(c Candidate) bool {
		if !c.Available {
			c.Available = true
			return in.why(c) == balance.Available && in.compare(c, chosen) < 0
		}
		return false
	})
}

// confidence is how sure the choice is, 0 to 1 (OC-15, OC-17).
func (in Input) confidence(free []Candidate, standIn bool) float64 {
	switch {
	case in.Strategy == balance.Capability && len(in.Constraints) == 0:
		return balance.Guessed
	case in.Strategy == balance.Capability:
		return float64(in.meets(free[0])) / float64(len(in.Constraints))
	case standIn:
		return balance.Guessed
	case len(free) == 1:
		return balance.Certain
	case in.Strategy == balance.RoundRobin:
		return balance.Guessed
	case in.Strategy == balance.LoadBalanced:
		return balance.Informed
	default:
		return balance.Certain
	}
}
