package step

import (
	"slices"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// avoided are the instances that must not get a step again: those that lost it, until they have
// restarted. An instance that lost all attempts but the last one does not get that one even after a
// restart, while another one is ready: only another instance shows whether the step is to blame.
func (t *Turn) avoided(a *attempt) []registry.Instance {
	lost := lostInstances(a.losses)
	bound := []selection.Strategy{selection.Manual, selection.Capability, selection.Weighted}
	if len(lost) < MaxAttempts-1 || slices.Contains(bound, a.task.Decision.Step.Instances.Strategy) ||
		slices.ContainsFunc(lost, func(in registry.Instance) bool { return in.ID != lost[0].ID }) {
		return lost
	}
	known := slices.DeleteFunc(t.svc.Roster.Instances(), func(in registry.Instance) bool { return in.Agent != a.at.Agent })
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

// lostInstances are the instances that lost a step by their own fault.
func lostInstances(losses []*dispatch.LostError) (all []registry.Instance) {
	for _, l := range losses {
		if !l.MemoryOutage {
			all = append(all, l.Instance)
		}
	}
	return all
}
