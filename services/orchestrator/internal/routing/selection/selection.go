// Package selection decides which instance of an agent gets a step. A decision is a pure function of
// its input, has a reason, and carries the part of its input from which it can be made again
// (contract OC-15, OC-18). Nothing here has a clock, a lock or a state.
package selection

import "slices"

// Request describes the task for which a decision is made. It is the same for agents, instances and tools
// (contract OC-14).
type Request struct {
	TraceID  string            `json:"trace_id,omitempty"`
	Profile  string            `json:"profile,omitempty"`
	Goal     string            `json:"goal,omitempty"` // what the user wants
	Task     string            `json:"task,omitempty"` // the step
	Metadata map[string]string `json:"metadata,omitempty"`
	// Needs are the needed capabilities: those of the step and those of the call (constraints in contract
	// OC-14).
	Needs  []string `json:"constraints,omitempty"`
	Parent string   `json:"parent,omitempty"` // trace of the turn that asked for this one
}

// Input contains everything that a decision depends on.
type Input struct {
	Request Request `json:"ask,omitzero"`
	Policy  Policy  `json:"policy"`
	Session string  `json:"session,omitempty"`
	// Counter is how many decisions this strategy made before for the same agent. It is part of the
	// input so that taking turns is repeatable (C-15).
	Counter uint64 `json:"counter"`

	Candidates []Candidate `json:"candidates,omitempty"` // by class and position
	Sizes      Sizes       `json:"of"`
	// Excluded are candidates that must not get this step, by id. It does not include full ones.
	Excluded map[string]Rejected `json:"out,omitempty"`
	// Withheld are instances that are no candidates. They only appear in the reason.
	Withheld []Rejected `json:"withheld,omitempty"`
	// Omitted counts the candidates that a record leaves out, by why they did not get the step.
	// Available ones could have had it.
	Omitted map[Availability]int `json:"omitted,omitempty"`
}

// Candidate is an instance that could take the step.
type Candidate struct {
	ID          string `json:"id"`
	Version     string `json:"version,omitempty"` // of the agent
	Incarnation int64  `json:"incarnation,omitempty"`
	InFlight    int32  `json:"in_flight"` // steps that this orchestrator has there
	Capacity    int32  `json:"capacity"`  // steps that it runs at once
	Position    int32  `json:"position"`  // within its class, from 0
	Class       Class  `json:"class"`
	// Capabilities are for strategy capability.
	Capabilities []string `json:"capabilities,omitempty"`

	hash  uint64 // of the id (0 before Arrange)
	kind  uint8  // number of its version (0 when it has none)
	skill uint8  // number of its set of capabilities (0 when it has none)
}

// Class groups candidates. No candidate of a class is asked while one of an earlier class has a free
// slot.
type Class uint8

// The classes.
const (
	Ready        Class = iota
	MissingReady       // ready, but its registration is missing
	Unstarted          // has to be started first
)

// Sizes counts the candidates of each class.
type Sizes [3]int

// Arrange numbers candidates that are sorted by class and id, and computes what every decision would
// have to compute again. It must be called again when a candidate other than its InFlight changes.
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

// maxKinds limits how many versions, and how many sets of capabilities, get a number. Further ones are
// compared by their texts.
const maxKinds = 32

// Rejected is an instance that does not get the step, and why.
type Rejected struct {
	ID           string       `json:"id"`
	Incarnation  int64        `json:"incarnation,omitempty"`
	Availability Availability `json:"why"`
	Detail       string       `json:"detail,omitempty"` // for a person
}

// These limits bound how many instances a decision names.
const (
	maxChoices  = 4 // the target and its alternatives
	maxRejected = 8
)

// Type is the type of a decision (OC-15).
type Type string

// The types.
const (
	Selection Type = "worker_selection"
	// StandIn is the selection of an instance because the one that the strategy prefers was rejected.
	StandIn Type = "fallback"
)

// How sure a decision is.
const (
	CertainConfidence  = 1.0 // the declaration leaves no choice
	InformedConfidence = 0.8 // it compared loads
	GuessedConfidence  = 0.5 // all are equal, or a better one was rejected
)

// Decision says which instance gets the step (none can take it now when Target is empty).
type Decision struct {
	Type         Type       `json:"type"`
	Strategy     Strategy   `json:"strategy"`
	Target       string     `json:"target,omitempty"` // instance id
	Reason       string     `json:"reason"`           // one sentence for a person; never empty
	Confidence   float64    `json:"confidence"`       // 0 to 1; 0 without a target
	Fallback     string     `json:"fallback,omitempty"`
	Alternatives []string   `json:"alternatives,omitempty"` // in the order in which they are asked when the target refuses; 3 at most
	Rejected     []Rejected `json:"rejected,omitempty"`     // most preferred first; 8 at most
	// MaybeLater reports, without a target, that an instance may take the step soon. At present it is full, has
	// rejected the step, did not answer, or has an open breaker.
	MaybeLater bool `json:"later,omitempty"`
	// Input leads to the same decision. Of many candidates it holds only those that mattered, at most
	// 28.
	Input Input `json:"input"`
}
