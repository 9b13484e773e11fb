// Package choice decides which agent gets a task and which tools a step may use (contract OC-13 to OC-18).
// Package selection does the same for instances, and both use the same terms. A decision is a pure function of
// its input.
package choice

import (
	"slices"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// CandidateType is the type of a candidate.
type CandidateType string

// The types.
const (
	Agent CandidateType = "agent"
	Tool  CandidateType = "tool"
	// Worker is the type of an instance of an agent. Package selection chooses among instances.
	Worker CandidateType = "worker"
)

// Policy says how to choose a candidate. The zero Policy chooses by capability.
type Policy struct {
	Strategy selection.Strategy
	// Needs lists capabilities, for strategy capability. A candidate must have at least one of them. The candidate
	// with the most is chosen. Without needs, the first available candidate is chosen.
	Needs      []string
	Priorities map[string]int // by candidate id, for strategy priority: the highest is chosen (0 by default)
	Names      []string       // ids of the candidates to choose, for strategy manual
}

// IsZero reports whether the policy sets nothing.
func (p Policy) IsZero() bool {
	return p.Strategy == "" && len(p.Needs) == 0 && len(p.Priorities) == 0 && len(p.Names) == 0
}

// Input contains everything that a decision depends on.
type Input struct {
	selection.Request
	Type     CandidateType
	Strategy selection.Strategy // (capability when empty, OC-16)
	Names    []string           // for strategy manual: ids of the candidates to choose, the best first
	// Counter is the number of earlier decisions for the same step. As a part of the input, it makes round robin
	// reproducible (C-15).
	Counter    uint64
	Candidates []Candidate // candidates in the order of their declaration
}

// Candidate is an agent, a tool or an instance that can be chosen (OC-14).
type Candidate struct {
	ID           string // unique within the input: the step that would run, or the tool
	Name         string // name of the agent or the tool
	Type         CandidateType
	Capabilities []string
	Metadata     map[string]string
	Available    bool
	Availability selection.Availability // why it is not available (Available when it is)
	Load         float64                // share of its capacity in use, 0 to 1
	Priority     int
}

// Rejected is a candidate that was not chosen, with the reason.
type Rejected struct {
	ID           string
	Availability selection.Availability
}

// Decision says which candidate is chosen (no candidate if Target is empty).
type Decision struct {
	Type       CandidateType
	IsStandIn  bool // the strategy prefers a candidate that is not available
	Strategy   selection.Strategy
	Target     string // id of the candidate that fits best
	Reason     string // one sentence for people; never empty
	Confidence float64
	// Alternatives are the other available candidates, best first. For tools, the step may use these as well.
	Alternatives []string
	Rejected     []Rejected // in the order of the candidates; 8 at most
	Input        Input      // input that leads to the same decision again
}

// maxRejected limits how many rejected candidates a decision names.
const maxRejected = 8

// Chosen returns the target and the alternatives, best first (empty without a target).
func (d Decision) Chosen() []string {
	if d.Target == "" {
		return nil
	}
	return append([]string{d.Target}, d.Alternatives...)
}

// FindCandidate returns the candidate with the given id (the zero Candidate if there is none).
func (in Input) FindCandidate(id string) Candidate {
	if i := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.ID == id }); i >= 0 {
		return in.Candidates[i]
	}
	return Candidate{}
}

// RenameCandidates returns the policy with each candidate id replaced by the result of to.
func (p Policy) RenameCandidates(to func(string) string) Policy {
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
