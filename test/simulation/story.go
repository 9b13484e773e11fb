package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/test/chaos/violation"
	"github.com/troupe-dev/troupe/test/simulation/network"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

// violates reports whether the run violated a check.
func (o Outcome) violates(check string) bool {
	return slices.ContainsFunc(o.Violations, func(v violation.Violation) bool { return v.Check == check })
}

// sessionNames finds the sessions that a violation names.
var sessionNames = regexp.MustCompile(`\b[scg]-\d+(-\d+)?f?\b`)

// Tell returns the story of a run for a person: what was promised, what went wrong, and every message of the sessions
// concerned, with its time, its process and its fault.
func (o Outcome) Tell(s schedule.Schedule) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Seed %d, %d clients, %d contenders, %s.\n", s.Seed, s.Clients, s.Contenders, s.Time)
	for _, f := range s.Faults {
		fmt.Fprintf(&text, "Fault: %s\n", f)
	}
	for _, v := range o.Violations {
		fmt.Fprintf(&text, "VIOLATION of %s\n", v)
	}
	if len(o.Violations) == 0 {
		text.WriteString("No violation.\n")
	}
	concerned := map[string]bool{}
	for _, v := range o.Violations {
		for _, name := range sessionNames.FindAllString(v.Detail, -1) {
			concerned[name] = true
		}
	}
	fmt.Fprintf(&text, "\n%9s   %-16s   %-14s %s\n", "time", "process", "to", "message, fault")
	for _, e := range o.Story {
		if len(concerned) == 0 || isConcerned(e, concerned) {
			fmt.Fprintln(&text, e)
		}
	}
	return text.String()
}

// isConcerned reports whether an entry belongs to one of the sessions, or to none.
func isConcerned(e network.Entry, sessions map[string]bool) bool {
	named := sessionNames.FindAllString(e.What, -1)
	return len(named) == 0 || slices.ContainsFunc(named, func(name string) bool { return sessions[name] }) || strings.HasPrefix(e.Detail, "FAULT")
}
