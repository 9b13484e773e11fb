package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Edge leads to a step if its condition holds for the result of the step before.
type Edge struct {
	When Condition
	Next string
}

// Condition is a condition on the result of a step. All fields that are set must hold.
type Condition struct {
	// ConfidenceBelow holds for a result with a lower confidence (no condition when 0). It never holds for a
	// result without a confidence.
	ConfidenceBelow   float64
	ObservationsBelow int  // fewer observations than this (no condition when 0)
	Failed            bool // the step failed (no condition when false)
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

// String describes the condition in words.
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

// String describes in words when the rule holds.
func (r Rule) String() string {
	var parts []string
	if r.ReplyTo != "" {
		parts = append(parts, "the user answers "+r.ReplyTo)
	}
	if r.MinUnanswered > 0 {
		parts = append(parts, fmt.Sprintf("%d messages in a row have no answer", r.MinUnanswered))
	}
	return strings.Join(parts, " and ")
}

// OnError is what happens when a step fails (OC-19). The zero OnError fails the turn.
type OnError struct {
	retry.Policy        // how often the step is retried first (OC-25)
	Continue     bool   // the turn continues, and the step is marked as failed
	Fallback     string // the step that follows then
}

// ContinuesTurn reports whether the turn continues after a step with this OnError has failed.
func (o OnError) ContinuesTurn() bool { return o.Continue || o.Fallback != "" }

// successors returns the steps that can follow, in the order of declaration. The join of a fork comes after its
// branches.
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

// unboundedSuccessors returns the steps that can follow without a choice by an agent, any number of times. A step
// with a limit leads only to the step that replaces it.
func (s Step) unboundedSuccessors() []string {
	unlimited := s
	unlimited.Join = ""
	if !s.Chooses() { // a strategy alone would never end the cycle
		unlimited.Routes = nil
	}
	if s.MaxEntries > 0 {
		unlimited = Step{Rules: s.Rules, Otherwise: s.Otherwise}
	}
	return unlimited.successors()
}
