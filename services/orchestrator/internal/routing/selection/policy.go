package selection

import "cmp"

// Strategy is a method of selecting an instance.
type Strategy string

// The strategies.
const (
	RoundRobin   Strategy = "round_robin"   // instances take turns; the default (OC-16)
	LoadBalanced Strategy = "load_balanced" // the less busy of two drawn at random
	Sticky       Strategy = "sticky"        // a session stays with one instance
	Weighted     Strategy = "weighted"      // each version gets its share of the steps
	Priority     Strategy = "priority"      // the version with the highest priority that has a free slot
	Manual       Strategy = "manual"        // the named instance
	Capability   Strategy = "capability"    // the instance with the most of the needed capabilities
)

// Strategies returns all strategies.
func Strategies() []Strategy {
	return []Strategy{RoundRobin, LoadBalanced, Sticky, Weighted, Priority, Manual, Capability}
}

// Policy says how to select the instance for a step. The zero Policy is round robin.
type Policy struct {
	Strategy Strategy `json:"strategy,omitempty"`
	// Weights are the percentages of the steps that each version gets, for strategy weighted. Versions without a
	// weight share the rest. If there is no rest, they are tried last. A version with weight 0 gets no steps.
	Weights map[string]int `json:"weights,omitempty"`
	// Priorities are the priorities of versions, for strategy priority. The highest is tried first (the default is
	// 0).
	Priorities map[string]int `json:"priorities,omitempty"`
	Instance   string         `json:"instance,omitempty"` // instance that must get the step, for strategy manual
	// Fallback is the strategy for the case that the named instance cannot accept the step (empty means that no
	// other instance may get it).
	Fallback Strategy `json:"fallback,omitempty"`
	// Needs lists capabilities, for strategy capability. An instance must have at least one of them. The instance
	// with the most is tried first. Without needs, the first available instance gets the step.
	Needs   []string `json:"needs,omitempty"`
	NamedBy string   `json:"by,omitempty"` // what named the instance, for the reason text (empty means the workflow)
}

// strategy returns the configured strategy, or the default.
func (p Policy) strategy() Strategy { return cmp.Or(p.Strategy, RoundRobin) }

// nameSource returns what named the instance, for the reason text.
func (p Policy) nameSource() string { return cmp.Or(p.NamedBy, "the workflow") }

// rankingStrategy returns the strategy that orders the instances other than the named one.
func (p Policy) rankingStrategy() Strategy {
	if p.strategy() == Manual {
		return cmp.Or(p.Fallback, RoundRobin)
	}
	return p.strategy()
}
