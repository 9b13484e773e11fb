package operate

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// quarantinePauseTimeout is how long a worker may take to pause for a quarantine. Its steps have already ended by
// then.
const quarantinePauseTimeout = 2 * time.Second

// Quarantine stops an agent from getting any steps (guarantee S18) and asks its workers to pause. The quarantine holds even
// if a worker does not pause, which its outcome reports. Quarantine fails with system_network if the registry
// cannot be reached. The quarantine may then be recorded nevertheless, and is not reverted.
func (o *Operator) Quarantine(ctx context.Context, agent, reason string) ([]Outcome, error) {
	d := registry.DesiredState{Key: registry.AgentKey(agent), Kind: registry.Quarantine, Reason: reason, Since: time.Now()}
	if err := o.registry.SetDesired(ctx, d); err != nil {
		return nil, inDoubtError(ctx, err)
	}
	o.desired.Put(d)
	o.log.Warn("agent quarantined", zap.String("agent", agent), zap.String("reason", reason))
	outcomes, _ := o.newOutcomes(agent) // fails when there are none, which is fine
	o.workers.callAll(ctx, quarantinePauseTimeout, outcomes, pauseCall("quarantined: "+d.Reason))
	return outcomes, nil
}

// Release ends the quarantine of an agent and asks its workers to resume, except for workers whose desired state
// is PAUSE or DRAIN. It fails like Quarantine, or with not_found. It also fails with system_network until the
// registry was read, because the quarantines are not known yet.
func (o *Operator) Release(ctx context.Context, agent, reason string) ([]Outcome, error) {
	isKnown := o.desired.IsFromRegistry()
	if _, ok := o.desired.Quarantine(agent); !ok {
		if !isKnown {
			return nil, failure.New(failure.SystemNetwork, "operate",
				"this orchestrator has just started, and has not read yet what is quarantined; call again")
		}
		return nil, failure.Newf(failure.NotFound, "operate", "agent %s is not quarantined", agent)
	}
	if err := o.registry.RemoveDesired(ctx, registry.AgentKey(agent)); err != nil {
		return nil, inDoubtError(ctx, err)
	}
	o.desired.EndQuarantine(agent)
	o.log.Warn("agent released from quarantine", zap.String("agent", agent), zap.String("reason", reason))
	found, _ := o.newOutcomes(agent)
	var outcomes []Outcome
	for _, out := range found {
		if o.desired.Get(out.Instance.Key()).Kind.AllowsSteps() {
			outcomes = append(outcomes, out)
		}
	}
	o.workers.callAll(ctx, answerTimeout, outcomes, resumeCall(reason))
	return outcomes, nil
}

// inDoubtError returns the error of a registry call that may have succeeded although its answer was lost.
func inDoubtError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return failure.New(failure.SystemNetwork, "operate", "the registry does not answer, and may have recorded it or not; "+
		"call again when it is there, and stop the workers if that cannot wait").Because(err)
}
