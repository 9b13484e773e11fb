package choice

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// describeDecision explains a decision in one sentence.
func (in Input) describeDecision(free []Candidate, d Decision) string {
	left := describeRejected(d.Rejected)
	switch {
	case len(free) == 0 && left == "":
		return fmt.Sprintf("there is no %s to choose", in.Type)
	case len(free) == 0:
		return fmt.Sprintf("no %s can be chosen: %s", in.Type, left)
	case left == "":
		return in.describeTarget(free, d)
	default:
		return in.describeTarget(free, d) + "; " + left
	}
}

func (in Input) describeTarget(free []Candidate, d Decision) string {
	c, n := free[0], len(free)
	var why string
	switch {
	case in.Strategy == selection.Manual:
		return "the workflow names " + strings.Join(d.Chosen(), ", ")
	case in.Strategy == selection.Capability:
		why = in.describeNeeds(c)
	case in.Strategy == selection.Priority:
		why = fmt.Sprintf("%s has priority %d, the highest", c.ID, c.Priority)
	case n == 1:
		why = c.ID + " is the only one that is available"
	case in.Strategy == selection.LoadBalanced:
		why = fmt.Sprintf("%s has %.0f %% of its slots in use, the least of %d", c.ID, 100*c.Load, n)
	default:
		why = fmt.Sprintf("%s is next in turn of %d", c.ID, n)
	}
	switch {
	case d.IsStandIn && in.Strategy == selection.Capability:
		why += ", and none with more is available"
	case d.IsStandIn:
		why += " of those that are available"
	}
	if in.Type == Tool && n > 1 {
		why += fmt.Sprintf("; %d more have some of it", n-1)
	}
	return why
}

// describeNeeds says how many of the needed capabilities a candidate has.
func (in Input) describeNeeds(c Candidate) string {
	needs := strings.Join(in.Needs, ", ")
	switch n := in.countMetNeeds(c); len(in.Needs) {
	case 0:
		return c.ID + " is the first that is available, and nothing is needed"
	case n:
		return fmt.Sprintf("%s has all that is needed: %s", c.ID, needs)
	default:
		return fmt.Sprintf("%s has %d of the %d that are needed: %s", c.ID, n, len(in.Needs), needs)
	}
}

// describeRejected returns a readable list of the rejected candidates. It omits candidates that a manual policy
// does not name.
func describeRejected(rejected []Rejected) string {
	var parts []string
	more := 0
	for _, r := range rejected {
		switch {
		case r.Availability == selection.NotNamed:
		case len(parts) == maxRejected:
			more++
		default:
			parts = append(parts, r.ID+" "+r.Availability.Describe())
		}
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more are left out", more))
	}
	return strings.Join(parts, ", ")
}
