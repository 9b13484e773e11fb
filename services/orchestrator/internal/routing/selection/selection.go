// Package selection decides which instance of an agent gets a step. A decision is a pure function of its input and
// has a reason. It records the part of its input that is needed to repeat it (contract OC-15, OC-18). The package
// has no clock, no locks and no state.
package selection

import "slices"

// Request describes what a decision is about. Decisions about agents, instances and tools use the same Request
// (contract OC-14).
type Request struct {
	TraceID  string            `json:"trace_id,omitempty"`
	Profile  string            `json:"profile,omitempty"`
	Goal     string            `json:"goal,omitempty"` // beginning of the user's text
	Task     string            `json:"task,omitempty"` // what the step must do
	Metadata map[string]string `json:"metadata,omitempty"`
	// Needs lists the needed capabilities, both of the step and of the call (constraints in contract OC-14).
	Needs  []string `json:"constraints,omitempty"`
	Parent string   `json:"parent,omitempty"` // trace of the turn that requested this one
}

// Input contains everything that a decision depends on.
type Input struct {
	Request Request `json:"ask,omitzero"`
	Policy  Policy  `json:"policy"`
	Session string  `json:"session,omitempty"`
	// Counter is the number of earlier decisions by this strategy for the same agent. As a part of the input, it
	// makes round robin reproducible (C-15).
	Counter uint64 `json:"counter"`

	Candidates []Candidate `json:"candidates,omitempty"` // sorted by class and position
	Sizes      ClassSizes  `json:"of"`
	// Excluded holds the candidates that must not get this step, by id. Full candidates need not be listed.
	Excluded map[string]Rejected `json:"out,omitempty"`
	// Withheld lists instances that are not candidates. They only appear in the reason.
	Withheld []Rejected `json:"withheld,omitempty"`
	// Omitted counts the candidates that a record omits, by availability. Available ones could have had the step.
	Omitted map[Availability]int `json:"omitted,omitempty"`
}

// Candidate is an instance that may get the step.
type Candidate struct {
	ID          string         `json:"id"`
	Version     string         `json:"version,omitempty"` // version of the agent
	Incarnation int64          `json:"incarnation,omitempty"`
	InFlight    int32          `json:"in_flight"` // steps of this orchestrator at the instance
	Capacity    int32          `json:"capacity"`  // how many steps the instance runs at once
	Position    int32          `json:"position"`  // place within its class, from 0
	Class       CandidateClass `json:"class"`
	// Capabilities are used by strategy capability only.
	Capabilities []string `json:"capabilities,omitempty"`

	hash          uint64 // hash of the id (0 before PrepareCandidates)
	versionNumber uint8  // number of its version (0 when it has none)
	capabilitySet uint8  // number of its set of capabilities (0 when it has none)
}

// CandidateClass groups the candidates of a step by how soon they can take it. A candidate is tried only if no candidate of an earlier class has a free slot.
type CandidateClass uint8

// The classes.
const (
	Ready        CandidateClass = iota
	Unregistered                // ready, but its registration has vanished
	Unstarted                   // has to be started first
)

// ClassSizes holds the number of candidates of each class.
type ClassSizes [3]int

// PrepareCandidates precomputes what every decision needs about candidates that are sorted by class and id. Call
// it again whenever a candidate changes in anything but InFlight.
func PrepareCandidates(candidates []Candidate) (of ClassSizes) {
	kinds := map[string]uint8{}
	var skills [][]string
	for i := range candidates {
		c := &candidates[i]
		if _, ok := kinds[c.Version]; !ok && len(kinds) < maxNumberedValues-1 {
			kinds[c.Version] = uint8(len(kinds) + 1)
		}
		skill := slices.IndexFunc(skills, func(s []string) bool { return slices.Equal(s, c.Capabilities) })
		if skill < 0 && len(skills) < maxNumberedValues-1 {
			skill, skills = len(skills), append(skills, c.Capabilities)
		}
		c.Position, c.hash, c.versionNumber, c.capabilitySet = int32(of[c.Class]), hash(c.ID), kinds[c.Version], uint8(skill+1)
		of[c.Class]++
	}
	return of
}

// maxNumberedValues limits how many versions, and how many capability sets, get a number. Further ones are compared by
// name.
const maxNumberedValues = 32

// Rejected is an instance that does not get the step, with the reason.
type Rejected struct {
	ID           string       `json:"id"`
	Incarnation  int64        `json:"incarnation,omitempty"`
	Availability Availability `json:"why"`
	Detail       string       `json:"detail,omitempty"` // explanation for people
}

// Limits of how many instances a decision lists.
const (
	maxChoices  = 4 // the target and its alternatives
	maxRejected = 8
)

// DecisionType is the type of a decision (OC-15).
type DecisionType string

// The types.
const (
	Selection DecisionType = "worker_selection"
	// StandIn is a decision for an instance that replaces a rejected one, which the strategy would have preferred.
	StandIn DecisionType = "fallback"
)

// How sure a decision is.
const (
	CertainConfidence  = 1.0 // the declaration leaves no choice
	InformedConfidence = 0.8 // it compared loads
	GuessedConfidence  = 0.5 // all are equal, or a better one was rejected
)

// Decision says which instance gets the step. If Target is empty, no instance can accept it now.
type Decision struct {
	Type         DecisionType `json:"type"`
	Strategy     Strategy     `json:"strategy"`
	Target       string       `json:"target,omitempty"` // instance id
	Reason       string       `json:"reason"`           // one sentence for people; never empty
	Confidence   float64      `json:"confidence"`       // 0 to 1; 0 without a target
	Fallback     string       `json:"fallback,omitempty"`
	Alternatives []string     `json:"alternatives,omitempty"` // in the order in which they are tried if the target rejects the step; 3 at most
	Rejected     []Rejected   `json:"rejected,omitempty"`     // most preferred first; 8 at most
	// MaySucceedLater is set when there is no target now but an instance may accept the step soon. That instance
	// is full, rejected the step, did not answer, or has an open breaker.
	MaySucceedLater bool `json:"later,omitempty"`
	// Input leads to the same decision again. If there were many candidates, it holds only the at most 28 that
	// mattered.
	Input Input `json:"input"`
}
