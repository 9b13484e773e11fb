package turn

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// avoided are the instances that shall not have a step again: those that lost it, until they have
// started anew. One that lost all attempts but the last does not have that, although it has started
// anew, while another is ready: whether the step or the instance is to blame shows at another one.
func (t *turn) avoided(a *attempt) []registry.Instance {
	lost := lostInstances(a.losses)
	anyone := !slices.Contains([]selection.Strategy{selection.Manual, selection.Capability, selection.Weighted}, a.task.Decision.Step.Instances.Strategy)
	if len(lost) < maxAttempts-1 || !anyone || slices.ContainsFunc(lost, func(in registry.Instance) bool { return in.ID != lost[0].ID }) {
		return lost
	}
	known := slices.DeleteFunc(t.Roster.Instances(), func(in registry.Instance) bool { return in.Agent != a.agent })
	if !slices.ContainsFunc(known, func(in registry.Instance) bool { return in.ID != lost[0].ID && in.State == lifecycle.Ready }) {
		return lost
	}
	for _, in := range known {
		if in.ID == lost[0].ID {
			lost = append(lost, in) // as it is now
		}
	}
	return lost
}

// quarantine tells of a turn that took down each worker, or orchestrator, that it was given to
// (guarantee F22). It is closed, and nobody is given it any more, also when the same request comes
// again; what is to be done about it is a person's to find out.
func (t *turn) quarantine(ctx context.Context, result *troupev1.TurnResult) {
	if !trace.Quarantined(result) {
		return
	}
	t.poison.Add(ctx, 1)
	why := grpcfailure.FromProto(result.GetFailure())
	t.log.Error("turn quarantined: it took down all that it was given to; see docs/operate.md",
		zap.String("trace", t.turn.Trace), zap.String("session", t.req.Session), zap.Int("turn", t.turn.Number),
		zap.String("target", t.target), zap.String("instances", why.Facts["instances"]), zap.Error(why))
}
