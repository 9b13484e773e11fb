package assignment

import (
	"slices"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// MaxAttempts is how many attempts at a step may be lost before the turn fails. The limit prevents a step that
// crashes its workers from crashing all of them (guarantees F1, F22).
const MaxAttempts = 3

// InstancesToAvoid returns the instances that must not get a step again. An instance that lost the step by its own
// fault is avoided until it has restarted. The last attempt also avoids the instance that lost all earlier ones,
// even after a restart, while another instance is ready. Only another instance can show whether the step itself is
// the cause.
func (t *Turn) InstancesToAvoid(a Attempt, lost []registry.Instance) []registry.Instance {
	bound := []selection.Strategy{selection.Manual, selection.Capability, selection.Weighted}
	if len(lost) < MaxAttempts-1 || slices.Contains(bound, a.Task.Decision.Step.Instances.Strategy) ||
		slices.ContainsFunc(lost, func(in registry.Instance) bool { return in.ID != lost[0].ID }) {
		return lost
	}
	known := slices.DeleteFunc(t.Instances.Instances(), func(in registry.Instance) bool { return in.Agent != a.Origin.Agent })
	if !slices.ContainsFunc(known, func(in registry.Instance) bool { return in.ID != lost[0].ID && in.State == lifecycle.Ready }) {
		return lost
	}
	for _, in := range known {
		if in.ID == lost[0].ID {
			lost = append(lost, in) // with its current registration
		}
	}
	return lost
}
