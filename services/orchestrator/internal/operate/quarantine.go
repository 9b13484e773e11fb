package operate

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// heedTime is what a worker may take to pause for a quarantine: its steps have been ended.
const heedTime = 2 * time.Second

// Quarantine shuts an agent out (S18), and tells its workers to pause. That the agent is shut out
// does not depend on them: an outcome that failed says that the worker did not do as it was told.
// Modes: system_network when the registry is away. Then it may be recorded all the same, and is
// not taken back.
func (o *Operator) Quarantine(ctx context.Context, agent, reason string) ([]Outcome, error) {
	d := registry.Desire{Key: registry.Whole(agent), Want: registry.Quarantine, Reason: reason, Since: time.Now()}
	if err := o.desires.Want(ctx, d); err != nil {
		return nil, unsure(ctx, err)
	}
	o.roster.Desired().Put(d)
	o.log.Warn("agent quarantined", zap.String("agent", agent), zap.String("reason", reason))
	outcomes, _ := o.instancesOf(agent) // which may have none
	o.all(ctx, heedTime, outcomes, pauseFor(d))
	return outcomes, nil
}

// Release ends the quarantine of an agent, and asks those workers to resume that nobody wants
// paused or drained. Modes as Quarantine, and not_found. Before the registry was read nobody knows
// what is quarantined: that is system_network too.
func (o *Operator) Release(ctx context.Context, agent, reason string) ([]Outcome, error) {
	heard := o.roster.Desired().IsFromRegistry()
	if _, out := o.roster.Desired().Quarantine(agent); !out {
		if !heard {
			return nil, failure.New(failure.SystemNetwork, "operate", "this orchestrator has just started, and has not read yet what is quarantined; call again")
		}
		return nil, failure.Newf(failure.NotFound, "operate", "agent %s is not quarantined", agent)
	}
	if err := o.desires.Forget(ctx, registry.Whole(agent)); err != nil {
		return nil, unsure(ctx, err)
	}
	o.roster.Desired().EndQuarantine(agent)
	o.log.Warn("agent released from quarantine", zap.String("agent", agent), zap.String("reason", reason))
	found, _ := o.instancesOf(agent)
	var outcomes []Outcome
	for _, out := range found {
		if o.roster.Desired().Get(out.Instance.Key()).Want.Routable() {
			outcomes = append(outcomes, out)
		}
	}
	o.all(ctx, answerTime, outcomes, resumeFor(reason))
	return outcomes, nil
}

func unsure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return failure.New(failure.SystemNetwork, "operate", "the registry does not answer, and may have recorded it or not; call again when it is there, and stop the workers if that cannot wait").Because(err)
}

// all asks the workers of instances, at once.
func (o *Operator) all(ctx context.Context, within time.Duration, outcomes []Outcome, do verb) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var asking sync.WaitGroup
	for i := range outcomes {
		out := &outcomes[i]
		asking.Go(func() { out.Status, out.Err = o.ask(ctx, out.Instance, do) })
	}
	asking.Wait()
}

func pauseFor(d registry.Desire) verb {
	return func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.Pause(ctx, &troupev1.PauseRequest{Reason: "quarantined: " + d.Reason})
		return resp.GetStatus(), err
	}
}

func resumeFor(reason string) verb {
	return func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.Resume(ctx, &troupev1.ResumeRequest{Reason: reason})
		return resp.GetStatus(), err
	}
}

// enforce tells those workers of quarantined agents to pause that are registered as if nothing
// were: they began later, or did not listen. One that was released meanwhile is resumed.
func (o *Operator) enforce(ctx context.Context) {
	for _, d := range o.roster.Desired().Quarantines() {
		found, _ := o.instancesOf(d.Key.Agent)
		var active []Outcome
		for _, out := range found {
			if out.Instance.State == lifecycle.Ready {
				active = append(active, out)
			}
		}
		o.all(ctx, heedTime, active, pauseFor(d))
		if _, out := o.roster.Desired().Quarantine(d.Key.Agent); !out && ctx.Err() == nil {
			o.all(ctx, answerTime, active, resumeFor("released"))
		}
	}
}

// guard enforces quarantines until ctx ends.
func (o *Operator) guard(ctx context.Context) {
	ticks := time.NewTicker(tendPeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			o.enforce(ctx)
		case <-ctx.Done():
			return
		}
	}
}
