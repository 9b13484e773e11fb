package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Edge leads to a step when the result of the one before it is as it says.
type Edge struct {
	When Condition
	Next string
}

// Condition is about the result of a step. All that is set must hold.
type Condition struct {
	// ConfidenceBelow holds for a result whose agent is less sure than that; one that does not
	// judge is not. 0: no condition.
	ConfidenceBelow   float64
	ObservationsBelow int  // fewer observations than that; 0: no condition
	Failed            bool // the step failed; false: no condition
}

// Holds reports whether the condition holds for a result.
func (c Condition) Holds(r execution.Result) bool {
	if c.Failed && r.Failure == nil {
		return false
	}
	if c.ObservationsBelow > 0 && len(r.Observations) >= c.ObservationsBelow {
		return false
	}
	return c.ConfidenceBelow == 0 || r.Confidence != nil && *r.Confidence < c.ConfidenceBelow
}

// String says in words what must hold.
func (c Condition) String() string {
	var parts []string
	if c.Failed {
		parts = append(parts, "it failed")
	}
	if c.ConfidenceBelow > 0 {
		parts = append(parts, fmt.Sprintf("a confidence below %v", c.ConfidenceBelow))
	}
	if c.ObservationsBelow > 0 {
		parts = append(parts, fmt.Sprintf("fewer than %d observations", c.ObservationsBelow))
	}
	return strings.Join(parts, " and ")
}

// String says in words when the rule holds.
func (r Rule) String() string {
	var parts []string
	if r.ReplyTo != "" {
		parts = append(parts, "the user answers "+r.ReplyTo)
	}
	if r.Unanswered > 0 {
		parts = append(parts, fmt.Sprintf("%d messages in a row have no answer", r.Unanswered))
	}
	return strings.Join(parts, " and ")
}

// OnError is what becomes of a step that fails (OC-19). The zero OnError fails the turn.
type OnError struct {
	retry.Policy        // how often it is tried again first (OC-25)
	Continue     bool   // the turn goes on, and the step is marked as failed
	Fallback     string // the step that comes next then
}

// Survivable reports whether the turn can go on behind the failure of such a step.
func (o OnError) Survivable() bool { return o.Continue || o.Fallback != "" }

// successors are the steps that can come next, in the order in which they are declared. The
// join of a fork comes behind its branches.
func (s Step) successors() []string {
	all := append(slices.Clone(s.Routes), s.Parallel...)
	if s.Next != "" {
		all = append(all, s.Next)
	}
	for _, r := range s.Rules {
		all = append(all, r.Next)
	}
	for _, e := range s.Then {
		all = append(all, e.Next)
	}
	for _, name := range []string{s.OnError.Fallback, s.Otherwise, s.Join} {
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}

// driven are the steps to which a step can lead for ever without anybody choosing: those of
// one with a limit are left out, but for those that come in its place.
func (s Step) driven() []string {
	unlimited := s
	unlimited.Join = ""
	if !s.Chooses() { // else nobody but a strategy ends it
		unlimited.Routes = nil
	}
	if s.Limit > 0 {
		unlimited = Step{Rules: s.Rules, Otherwise: s.Otherwise}
	}
	return unlimited.successors()
}
