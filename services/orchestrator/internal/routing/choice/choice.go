// Package choice decides among a few: which agent has a task, and which tools a step may use
// (contract OC-13 to OC-18). It is to agents and tools what package selection is to instances,
// whose words it uses, and as pure: whoever replays an input gets the same decision.
package choice

import (
	"slices"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Type is what a candidate is.
type Type string

// The types.
const (
	Agent Type = "agent"
	Tool  Type = "tool"
	// Worker is an instance of an agent. Among those package selection decides.
	Worker Type = "worker"
)

// Policy is how it is chosen. The zero Policy is by capability.
type Policy struct {
	Strategy selection.Strategy
	// Needs are capabilities of which a candidate must have some, the more the better; with
	// capability. Without any the first that is available is chosen.
	Needs      []string
	Priorities map[string]int // of candidates by id, the higher the earlier, 0 for those without one; with priority
	Names      []string       // ids of candidates, which are chosen; with manual
}

// IsZero reports whether nothing is declared.
func (p Policy) IsZero() bool {
	return p.Strategy == "" && len(p.Needs) == 0 && len(p.Priorities) == 0 && len(p.Names) == 0
}

// Input is all that a decision depends on.
type Input struct {
	selection.Request
	Type     Type
	Strategy selection.Strategy // empty: capability (OC-16)
	Names    []string           // with manual: who is chosen, the best first
	// Counter is how many decisions there were before this one among the same. That it is part of
	// the input is what makes taking turns repeatable (C-15).
	Counter    uint64
	Candidates []Candidate // in the order in which they are declared
}

// Candidate is one that could be chosen (OC-14).
type Candidate struct {
	ID           string // within the input: the step that would run, or the tool
	Name         string // of the agent, or of the tool
	Type         Type
	Capabilities []string
	Metadata     map[string]string
	Available    bool
	Why          selection.Availability // it is not available; Available when it is
	Load         float64                // the part of its places that is taken, 0 to 1
	Priority     int
}

// Rejected is a candidate that was not chosen, and why.
type Rejected struct {
	ID  string
	Why selection.Availability
}

// Decision says who is chosen. Without a Target nobody can be.
type Decision struct {
	Type       Type
	StandIn    bool // the strategy would rather have had one that is not available
	Strategy   selection.Strategy
	Target     string // id of the candidate that fits best
	Reason     string // one sentence for a person; never empty
	Confidence float64
	// Alternatives are the others that could be chosen, the best first; of tools those that may be
	// used as well.
	Alternatives []string
	Rejected     []Rejected // in the order of the candidates; 8 at most
	Input        Input      // that leads to this decision
}

// maxRejected is how many a decision tells of that were not chosen.
const maxRejected = 8

// Chosen are the candidates that are allowed, the best first; none without a target.
func (d Decision) Chosen() []string {
	if d.Target == "" {
		return nil
	}
	return append([]string{d.Target}, d.Alternatives...)
}

// Find is a candidate of the input; the zero Candidate when there is none with this id.
func (in Input) Find(id string) Candidate {
	if i := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.ID == id }); i >= 0 {
		return in.Candidates[i]
	}
	return Candidate{}
}

// Rename is the policy with other ids.
func (p Policy) Rename(to func(string) string) Policy {
	names, priorities := p.Names, p.Priorities
	p.Names, p.Priorities = nil, nil
	for _, name := range names {
		p.Names = append(p.Names, to(name))
	}
	for name, priority := range priorities {
		if p.Priorities == nil {
			p.Priorities = map[string]int{}
		}
		p.Priorities[to(name)] = priority
	}
	return p
}
