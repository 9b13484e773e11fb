package request

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxAncestors is the largest number of ancestors that a request names. A budget allows fewer levels.
const maxAncestors = 32

// WithAncestor returns the labels with one more ancestor. A name occurs once.
func (l Labels) WithAncestor(name string) Labels {
	if !slices.Contains(l.Ancestors, name) && len(l.Ancestors) < maxAncestors {
		l.Ancestors = append(slices.Clip(l.Ancestors), name)
	}
	return l
}

// CheckAncestry rejects a turn whose target is one of its ancestors: agents that ask each other in a circle would only end
// at the limit of the depth. Modes: policy_budget.
func (l Labels) CheckAncestry(target string) error {
	if !slices.Contains(l.Ancestors, target) {
		return nil
	}
	chain := strings.Join(append(slices.Clone(l.Ancestors), target), " > ")
	return failure.Newf(failure.PolicyBudget, "turn.Orchestrate",
		"target: %s has led to this request (%s), and may not be requested again; give the answer without it", target, chain).
		With("fields", "target").With("ancestors", chain)
}
