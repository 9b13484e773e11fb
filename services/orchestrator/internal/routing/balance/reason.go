package balance

import (
	"fmt"
	"strings"
)

// reason says in one sentence why the first of the choices gets the step.
func (s *sight) reason(choices []glance) string {
	c := s.at(choices[0])
	why := s.because(choices)
	switch c.Class {
	case Doubtful:
		why += ", though its registration is missing"
	case Unstarted:
		why += ", after it was started"
	case Ready:
	}
	others := s.tally
	others[NotNamed] = 0 // which goes without saying
	if others.rejected() > 0 {
		why += "; " + others.String()
	}
	return why
}

func (s *sight) because(choices []glance) string {
	c := s.at(choices[0])
	if s.order.named != "" {
		return s.named(choices)
	}
	if s.missed(choices[0]) {
		return s.instead(c)
	}
	switch s.order.strategy {
	case Sticky:
		return "the session stays with " + c.ID
	case Weighted:
		return fmt.Sprintf("this step is one of those for %s, and %s", s.share(), s.compared(choices))
	case Priority:
		return fmt.Sprintf("%s has priority %d, the highest", c.ID, s.order.priority(c))
	case Capability:
		return s.fit(c)
	default:
		return s.among(choices)
	}
}

// among is why one is chosen of many that are equal.
func (s *sight) among(choices []glance) string {
	c := s.at(choices[0])
	switch n := s.tally[Available]; {
	case n == 1:
		return c.ID + " is the only one that can take it"
	case s.order.strategy == LoadBalanced:
		return s.compared(choices)
	case s.order.strategy == Sticky:
		return "the session stays with " + c.ID
	default:
		return fmt.Sprintf("%s is next in turn of %d", c.ID, n)
	}
}

func (s *sight) compared(choices []glance) string {
	c := s.at(choices[0])
	places := fmt.Sprintf("%s has %d of %d places taken", c.ID, c.InFlight, c.Capacity)
	if len(choices) == 1 || !s.order.compares(choices[0].rank, choices[1].rank) {
		return places
	}
	if other := s.at(choices[1]); busier(other, c) {
		return places + ", the fewest of two asked"
	}
	return places + ", as few as the other of two asked"
}

// named is for a policy that names one.
func (s *sight) named(choices []glance) string {
	c := s.at(choices[0])
	if c.ID == s.order.named {
		return s.in.Policy.namer() + " names " + c.ID
	}
	return fmt.Sprintf("%s names %s, which %s; %s", s.in.Policy.namer(), s.order.named, s.fate(), s.among(choices))
}

// fate is what is known of the named one.
func (s *sight) fate() string {
	for _, g := range s.out.all() {
		if s.at(g).ID == s.order.named {
			return g.why.Of()
		}
	}
	for _, w := range s.in.Withheld {
		if w.ID == s.order.named {
			return w.Why.Of()
		}
	}
	return "is not known"
}

// instead is for one that stands in for another.
func (s *sight) instead(c *Candidate) string {
	missed := s.out.items[0]
	if class := s.at(missed).Class; class < c.Class {
		return fmt.Sprintf("%s stands in, for none that is %s can take it", c.ID, class)
	}
	switch s.order.strategy {
	case Sticky:
		return fmt.Sprintf("%s stands in for %s, with which the session stays and which %s", c.ID, s.at(missed).ID, missed.why.Of())
	case Weighted:
		return fmt.Sprintf("%s stands in: this step is one of those for %s, of which none can take it", c.ID, s.share())
	case Priority:
		return fmt.Sprintf("%s has priority %d, and none above it can take the step", c.ID, s.order.priority(c))
	case Capability:
		return s.fit(c) + ", and none with more can take it"
	default:
		return c.ID + " stands in for " + s.at(missed).ID
	}
}

// fit says how well one meets what the step needs.
func (s *sight) fit(c *Candidate) string {
	needs := strings.Join(s.order.needs, ", ")
	switch n := s.order.meets(c); len(s.order.needs) {
	case 0:
		return c.ID + " is the first that can take it, and the step needs nothing"
	case n:
		return fmt.Sprintf("%s has all that the step needs: %s", c.ID, needs)
	default:
		return fmt.Sprintf("%s has %d of the %d that the step needs: %s", c.ID, n, len(s.order.needs), needs)
	}
}

// share names the version whose step it is.
func (s *sight) share() string {
	o := s.order
	switch {
	case o.drawn < 0:
		return "no version"
	case o.drawn == len(o.versions):
		return "the other versions"
	default:
		return fmt.Sprintf("version %s (%d of 100)", o.versions[o.drawn].name, o.versions[o.drawn].value)
	}
}

// nobody is why there is no target.
func (s *sight) nobody() string {
	switch {
	case s.order.alone:
		return fmt.Sprintf("%s names %s, which %s", s.in.Policy.namer(), s.order.named, s.fate())
	case s.tally.rejected() == 0:
		return "no instance is known"
	default:
		return "no instance can take it: " + s.tally.String()
	}
}
