package selection

import "cmp"

// Strategy is a way to choose among instances.
type Strategy string

// The strategies.
const (
	RoundRobin   Strategy = "round_robin"   // in turn; the default (OC-16)
	LoadBalanced Strategy = "load_balanced" // the less busy of two drawn at random
	Sticky       Strategy = "sticky"        // a session stays with one
	Weighted     Strategy = "weighted"      // versions get shares
	Priority     Strategy = "priority"      // the version with the highest priority that has a place
	Manual       Strategy = "manual"        // the one that is named
	Capability   Strategy = "capability"    // the one that has most of what the step needs
)

// Strategies are all of them.
func Strategies() []Strategy {
	return []Strategy{RoundRobin, LoadBalanced, Sticky, Weighted, Priority, Manual, Capability}
}

// Policy is how the instance for a step is chosen. The zero Policy is round robin.
type Policy struct {
	Strategy Strategy `json:"strategy,omitempty"`
	// Weights are the percentages that versions get of the steps; with weighted. Versions
	// without one share what is left, and are asked last when nothing is. 0 means none at all.
	Weights map[string]int `json:"weights,omitempty"`
	// Priorities of versions, the higher the earlier, 0 for those without one; with priority.
	Priorities map[string]int `json:"priorities,omitempty"`
	Instance   string         `json:"instance,omitempty"` // that has to take the step; with manual
	// Fallback chooses when that one cannot take it; with manual. Empty: nobody else does.
	Fallback Strategy `json:"fallback,omitempty"`
	// Needs are capabilities of which an instance must have some, the more the better; with
	// capability. Without any the first that is available has the step.
	Needs []string `json:"needs,omitempty"`
	By    string   `json:"by,omitempty"` // what names it, for people; with manual. Empty: the workflow
}

// strategy is the one that is followed.
func (p Policy) strategy() Strategy { return cmp.Or(p.Strategy, RoundRobin) }

// nameSource is what names the instance.
func (p Policy) nameSource() string { return cmp.Or(p.By, "the workflow") }

// rankingStrategy is the strategy by which those are ordered that are not named.
func (p Policy) rankingStrategy() Strategy {
	if p.strategy() == Manual {
		return cmp.Or(p.Fallback, RoundRobin)
	}
	return p.strategy()
}
