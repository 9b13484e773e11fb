package selection

import (
	"fmt"
	"strings"
)

// describeTarget explains in one sentence why the first of the choices gets the step.
func (s *survey) describeTarget(choices []rankedCandidate) string {
	c := s.candidate(choices[0])
	why := s.describeChoice(choices)
	switch c.Class {
	case Unregistered:
		why += ", though its registration is missing"
	case Unstarted:
		why += ", after it was started"
	case Ready:
	}
	others := s.tally
	others[NotNamed] = 0 // needs no explanation
	if others.countRejected() > 0 {
		why += "; " + others.String()
	}
	return why
}

func (s *survey) describeChoice(choices []rankedCandidate) string {
	c := s.candidate(choices[0])
	if s.ranking.manual.id != "" {
		return s.describeManual(choices)
	}
	if s.isStandIn(choices[0]) {
		return s.describeStandIn(c)
	}
	switch s.ranking.strategy {
	case Sticky:
		return "the session stays with " + c.ID
	case Weighted:
		return fmt.Sprintf("this step belongs to %s, and %s", s.describeShare(), s.describeLoad(choices))
	case Priority:
		return fmt.Sprintf("%s has priority %d, the highest", c.ID, s.ranking.priority(c))
	case Capability:
		return s.describeNeeds(c)
	default:
		return s.describeTurn(choices)
	}
}

// describeTurn explains a choice among instances that the policy ranks equally.
func (s *survey) describeTurn(choices []rankedCandidate) string {
	c := s.candidate(choices[0])
	switch n := s.tally[Available]; {
	case n == 1:
		return c.ID + " is the only one that can take it"
	case s.ranking.strategy == LoadBalanced:
		return s.describeLoad(choices)
	case s.ranking.strategy == Sticky:
		return "the session stays with " + c.ID
	default:
		return fmt.Sprintf("%s is next in turn of %d", c.ID, n)
	}
}

func (s *survey) describeLoad(choices []rankedCandidate) string {
	c := s.candidate(choices[0])
	slots := fmt.Sprintf("%s has %d of %d slots in use", c.ID, c.InFlight, c.Capacity)
	if len(choices) == 1 || !s.ranking.comparesLoads(choices[0].rank, choices[1].rank) {
		return slots
	}
	if other := s.candidate(choices[1]); isBusier(other, c) {
		return slots + ", the fewest of two asked"
	}
	return slots + ", as few as the other of two asked"
}

// describeManual explains the choice under a policy that names an instance.
func (s *survey) describeManual(choices []rankedCandidate) string {
	c := s.candidate(choices[0])
	if c.ID == s.ranking.manual.id {
		return s.in.Policy.nameSource() + " names " + c.ID
	}
	return fmt.Sprintf("%s names %s, which %s; %s", s.in.Policy.nameSource(), s.ranking.manual.id, s.describeNamed(), s.describeTurn(choices))
}

// describeNamed says why the named instance does not get the step.
func (s *survey) describeNamed() string {
	for _, g := range s.rejected.all() {
		if s.candidate(g).ID == s.ranking.manual.id {
			return g.availability.Describe()
		}
	}
	for _, w := range s.in.Withheld {
		if w.ID == s.ranking.manual.id {
			return w.Availability.Describe()
		}
	}
	return "is not known"
}

// describeStandIn explains the choice of an instance that replaces a preferred one.
func (s *survey) describeStandIn(c *Candidate) string {
	missed := s.rejected.items[0]
	if class := s.candidate(missed).Class; class < c.Class {
		return fmt.Sprintf("%s stands in, because no %s instance can take it", c.ID, class)
	}
	switch s.ranking.strategy {
	case Sticky:
		return fmt.Sprintf("%s stands in for %s, the instance of the session, which %s", c.ID, s.candidate(missed).ID, missed.availability.Describe())
	case Weighted:
		return fmt.Sprintf("%s stands in: this step belongs to %s, and none of its instances can take it", c.ID, s.describeShare())
	case Priority:
		return fmt.Sprintf("%s has priority %d, and none with a higher priority can take the step", c.ID, s.ranking.priority(c))
	case Capability:
		return s.describeNeeds(c) + ", and none with more can take it"
	default:
		return c.ID + " stands in for " + s.candidate(missed).ID
	}
}

// describeNeeds says how many of the needed capabilities an instance has.
func (s *survey) describeNeeds(c *Candidate) string {
	needs := strings.Join(s.ranking.needs, ", ")
	switch n := s.ranking.countMetNeeds(c); len(s.ranking.needs) {
	case 0:
		return c.ID + " is the first that can take it, and the step needs nothing"
	case n:
		return fmt.Sprintf("%s has all that the step needs: %s", c.ID, needs)
	default:
		return fmt.Sprintf("%s has %d of the %d that the step needs: %s", c.ID, n, len(s.ranking.needs), needs)
	}
}

// describeShare says which version the step belongs to.
func (s *survey) describeShare() string {
	o := s.ranking
	switch {
	case o.shares.drawnVersion < 0:
		return "no version"
	case o.shares.drawnVersion == len(o.versions):
		return "the other versions"
	default:
		return fmt.Sprintf("version %s (%d of 100)", o.versions[o.shares.drawnVersion].name, o.versions[o.shares.drawnVersion].value)
	}
}

// describeNoTarget explains why no instance is selected.
func (s *survey) describeNoTarget() string {
	switch {
	case s.ranking.manual.isExclusive:
		return fmt.Sprintf("%s names %s, which %s", s.in.Policy.nameSource(), s.ranking.manual.id, s.describeNamed())
	case s.tally.countRejected() == 0:
		return "no instance is known"
	default:
		return "no instance can take it: " + s.tally.String()
	}
}
