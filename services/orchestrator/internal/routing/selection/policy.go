package selection

import "cmp"

// Strategy is a way to select an instance.
type Strategy string

// The strategies.
const (
	RoundRobin   Strategy = "round_robin"   // in turn; the default (OC-16)
	LoadBalanced Strategy = "load_balanced" // the less busy of two drawn at random
	Sticky       Strategy = "sticky"        // a session stays with one instance
	Weighted     Strategy = "weighted"      // versions get shares
	Priority     Strategy = "priority"      // the version with the highest priority that has a free slot
	Manual       Strategy = "manual"        // the named instance
	Capability   Strategy = "capability"    // the instance with the most of the needed capabilities
)

// Strategies returns all strategies.
func Strategies() []Strategy {
	return []Strategy{RoundRobin, LoadBalanced, Sticky, Weighted, Priority, Manual, Capability}
}

// Policy says how the instance for a step is selected. The zero Policy is round robin.
type Policy struct {
	Strategy Strategy `json:"strategy,omitempty"`
	// Weights are the percentages of the steps that versions get, for strategy weighted. Versions
	// without a weight share the rest, and are asked last when there is none. A version of weight 0
	// gets no steps.
	Weights map[string]int `json:"weights,omitempty"`
	// Priorities of versions, for strategy priority: the highest is asked first (0 by default).
	Priorities map[string]int `json:"priorities,omitempty"`
	Instance   string         `json:"instance,omitempty"` // that has to take the step, for strategy manual
	// Fallback selects another instance when that one cannot take the step (empty: none may).
	Fallback Strategy `json:"fallback,omitempty"`
	// Needs are capabilities, for strategy capability. An instance must have at least one, and the one
	// with the most is asked first. Without needs the first available instance gets the step.
	Needs []string `json:"needs,omitempty"`
	By    string   `json:"by,omitempty"` // what names the instance, for the reason (the workflow when empty)
}

// strategy returns the strategy with its default.
func (p Policy) strategy() Strategy { return cmp.Or(p.Strategy, RoundRobin) }

// nameSource is what names the instance.
func (p Policy) nameSource() string { return cmp.Or(p.By, "the workflow") }

// rankingStrategy returns the strategy that orders the instances that the policy does not name.
func (p Policy) rankingStrategy() Strategy {
	if p.strategy() == Manual {
		return cmp.Or(p.Fallback, RoundRobin)
	}
	return p.strategy()
}
