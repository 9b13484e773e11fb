package assignment

import (
	"slices"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// MaxAttempts is how many instances may lose a step before the turn fails: a step that crashes its workers must
// not crash all of them (guarantees F1, F22).
const MaxAttempts = 3

// InstancesToAvoid returns the instances that must not get a step again: those that lost it by their own fault,
// until they have restarted. An instance that lost all attempts but the last one does not get that one even
// after a restart, while another one is ready: only another instance shows whether the step is to blame.
func (t *Turn) InstancesToAvoid(a Attempt, lost []registry.Instance) []registry.Instance {
	bound := []selection.Strategy{selection.Manual, selection.Capability, selection.Weighted}
	if len(lost) < MaxAttempts-1 || slices.Contains(bound, a.Task.Decision.Step.Instances.Strategy) ||
		slices.ContainsFunc(lost, func(in registry.Instance) bool { return in.ID != lost[0].ID }) {
		return lost
	}
	known := slices.DeleteFunc(t.Instances.Instances(), func(in registry.Instance) bool { return in.Agent != a.Position.Agent })
	if !slices.ContainsFunc(known, func(in registry.Instance) bool { return in.ID != lost[0].ID && in.State == lifecycle.Ready }) {
		return lost
	}
	for _, in := range known {
		if in.ID == lost[0].ID {
			lost = append(lost, in) // as it is registered now
		}
	}
	return lost
}
