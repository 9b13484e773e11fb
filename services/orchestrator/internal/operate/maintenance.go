package operate

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
)

// maintenancePeriod is the time between two maintenance runs if nothing changes.
const maintenancePeriod = 5 * time.Second

// maintainRecords runs until ctx ends. It replaces desired states that are in doubt, and removes the desired
// states of instances that are gone. Any orchestrator may remove them, because the registry keeps the desired
// state of a registered instance.
func (o *Operator) maintainRecords(ctx context.Context) {
	ticks := time.NewTicker(maintenancePeriod)
	defer ticks.Stop()
	for {
		unclaimed, changed := o.instances.UnclaimedDesiredStates()
		for _, d := range unclaimed {
			if err := o.registry.RemoveDesired(ctx, d.Key); err != nil {
				o.log.Debug("the desired state of a gone instance was not forgotten", zap.Error(err))
			}
		}
		o.recorder.resolveAllDoubts(ctx)
		select {
		case <-changed:
		case <-ticks.C:
		case <-o.recorder.wake:
		case <-ctx.Done():
			return
		}
	}
}

// maintainQuarantines enforces quarantines until ctx ends.
func (o *Operator) maintainQuarantines(ctx context.Context) {
	ticks := time.NewTicker(maintenancePeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			o.enforceQuarantines(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// enforceQuarantines pauses workers of quarantined agents that are registered as READY. They registered after the
// quarantine began, or did not pause. A worker whose agent was released in the meantime is resumed.
func (o *Operator) enforceQuarantines(ctx context.Context) {
	for _, d := range o.desired.Quarantines() {
		found, _ := o.newOutcomes(d.Key.Agent)
		var active []Outcome
		for _, out := range found {
			if out.Instance.State == lifecycle.Ready {
				active = append(active, out)
			}
		}
		o.workers.callAll(ctx, quarantinePauseTimeout, active, pauseCall("quarantined: "+d.Reason))
		if _, still := o.desired.Quarantine(d.Key.Agent); !still && ctx.Err() == nil {
			o.workers.callAll(ctx, answerTimeout, active, resumeCall("released"))
		}
	}
}
