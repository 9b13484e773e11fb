// Package selection decides which instance of an agent gets a step. A decision is a pure
// function of its input, explains itself, and carries as much of that input as it takes to
// make it again (contract OC-15, OC-18): whoever replays what was recorded gets the same
// decision. Nothing here has a clock, a lock or a memory.
package selection

import "slices"

// Request is for whom and for what it is decided, the same for all that is decided (contract OC-14).
type Request struct {
	TraceID  string            `json:"trace_id,omitempty"`
	Profile  string            `json:"profile,omitempty"`
	Goal     string            `json:"goal,omitempty"` // what the user wants
	Task     string            `json:"task,omitempty"` // the step that is decided about
	Metadata map[string]string `json:"metadata,omitempty"`
	// Constraints are the capabilities that are needed: those of the step, and of the call.
	Constraints []string `json:"constraints,omitempty"`
	Parent      string   `json:"parent,omitempty"` // trace of the turn that asked for this one
}

// Input is all that a decision depends on.
type Input struct {
	Request Request `json:"ask,omitzero"`
	Policy  Policy  `json:"policy"`
	Session string  `json:"session,omitempty"`
	// Counter is how many decisions there were before this one for the same agent by the same
	// strategy. That it is part of the input is what makes taking turns repeatable (C-15).
	Counter uint64 `json:"counter"`

	Candidates []Candidate `json:"candidates,omitempty"` // by class and position
	Sizes      Sizes       `json:"of"`
	// Out are candidates that shall not have this step, by id. Those that are full are
	// not among them.
	Out map[string]Rejected `json:"out,omitempty"`
	// Withheld are instances that are no candidates, for the explanation.
	Withheld []Rejected `json:"withheld,omitempty"`
	// Omitted is how many more there were that a record leaves out, by why they did not get
	// the step. Those of Available could have had it.
	Omitted map[Availability]int `json:"omitted,omitempty"`
}

// Candidate is an instance that may take steps.
type Candidate struct {
	ID          string `json:"id"`
	Version     string `json:"version,omitempty"` // of the agent
	Incarnation int64  `json:"incarnation,omitempty"`
	InFlight    int32  `json:"in_flight"` // steps that this orchestrator has there
	Capacity    int32  `json:"capacity"`  // steps that it takes at once
	Position    int32  `json:"position"`  // among those of its class, from 0
	Class       Class  `json:"class"`
	// Capabilities are what it can do beyond others, for capability.
	Capabilities []string `json:"capabilities,omitempty"`

	hash  uint64 // of the id; 0 when it is not known yet
	kind  uint8  // the same for those of the same version; 0 when it is not known
	skill uint8  // the same for those with the same capabilities; 0 when it is not known
}

// Class is how gladly a candidate is asked: none of a class while one of an earlier class
// has a place.
type Class uint8

// The classes.
const (
	Ready     Class = iota
	Doubtful        // ready, and its registration is missing; it stays in work until it is known better
	Unstarted       // has to be started first
)

// Sizes is how many candidates there are in each class.
type Sizes [3]int

// Arrange numbers candidates that are sorted by class and id, and learns of each id what
// every decision would have to learn anew. Whoever changes them afterwards arranges them again.
func Arrange(candidates []Candidate) (of Sizes) {
	kinds := map[string]uint8{}
	var skills [][]string
	for i := range candidates {
		c := &candidates[i]
		if _, ok := kinds[c.Version]; !ok && len(kinds) < maxKinds-1 {
			kinds[c.Version] = uint8(len(kinds) + 1)
		}
		skill := slices.IndexFunc(skills, func(s []string) bool { return slices.Equal(s, c.Capabilities) })
		if skill < 0 && len(skills) < maxKinds-1 {
			skill, skills = len(skills), append(skills, c.Capabilities)
		}
		c.Position, c.hash, c.kind, c.skill = int32(of[c.Class]), hash(c.ID), kinds[c.Version], uint8(skill+1)
		of[c.Class]++
	}
	return of
}

// maxKinds is how many versions of an agent are told apart by number, and how many sets of
// capabilities. Those of further ones have none, and are compared by their texts.
const maxKinds = 32

// Rejected is an instance that does not get the step, and why.
type Rejected struct {
	ID          string       `json:"id"`
	Incarnation int64        `json:"incarnation,omitempty"`
	Why         Availability `json:"why"`
	Detail      string       `json:"detail,omitempty"` // for a person
}

// How much a decision names, however many instances there are.
const (
	maxChoices  = 4 // the target and its alternatives
	maxRejected = 8
)

// Type is what kind of decision it is (OC-15).
type Type string

// The types.
const (
	Selection Type = "worker_selection"
	// StandIn is a selection behind the one that the strategy prefers, which was rejected.
	StandIn Type = "fallback"
)

// How sure a decision is.
const (
	Certain  = 1.0 // what is declared leaves no choice
	Informed = 0.8 // it compared loads
	Guessed  = 0.5 // one is as good as another, or a better one was rejected
)

// Decision says who gets the step. Without a Target nobody can take it now.
type Decision struct {
	Type         Type       `json:"type"`
	Strategy     Strategy   `json:"strategy"`
	Target       string     `json:"target,omitempty"` // instance id
	Reason       string     `json:"reason"`           // one sentence for a person; never empty
	Confidence   float64    `json:"confidence"`       // 0 to 1; 0 without a target
	Fallback     string     `json:"fallback,omitempty"`
	Alternatives []string   `json:"alternatives,omitempty"` // in the order in which they are asked when the target refuses; 3 at most
	Rejected     []Rejected `json:"rejected,omitempty"`     // most preferred first; 8 at most
	// Later reports, without a target, that somebody may take it in a while: it is full, or
	// refused, did not answer, or is left alone for a while.
	Later bool `json:"later,omitempty"`
	// Input is what the decision was made of. Of many candidates it holds those that mattered,
	// 28 at most: Decide gives the same decision for it.
	Input Input `json:"input"`
}
