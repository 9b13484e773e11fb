// Package operate executes the commands of operators: pause, resume, quarantine and release an agent, and drain
// and describe an instance. A command first records the desired state in the registry, so that no orchestrator
// routes steps there. Then it calls the worker, whose answer determines the outcome.
package operate

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/desired"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Operator executes the commands of operators. Safe for concurrent use.
type Operator struct {
	instances     *instances.Cache
	desired       *desired.State
	registry      registry.DesiredStates
	recorder      *recorder
	workers       workers
	log           *zap.Logger
	background    *backgroundCalls
	pendingPauses *callCounts // pending Pause calls
	pendingDrains *callCounts // pending Drain calls
}

// New returns an Operator for the cached instances. The caller must run Run.
func New(cache *instances.Cache, r registry.DesiredStates, pool *connection.Pool, log *zap.Logger) *Operator {
	log = log.Named("operate")
	return &Operator{
		instances: cache, desired: cache.Desired(), registry: r, recorder: newRecorder(cache.Desired(), r, log),
		workers: workers{pool}, log: log, background: newBackgroundCalls(), pendingPauses: newCallCounts(), pendingDrains: newCallCounts(),
	}
}

// Run watches the desired state and maintains its records until ctx ends. Then it cancels the background calls.
func (o *Operator) Run(ctx context.Context) error {
	var maintenance sync.WaitGroup
	maintenance.Go(func() { o.maintainRecords(ctx) })
	maintenance.Go(func() { o.maintainQuarantines(ctx) })
	defer maintenance.Wait()
	defer o.background.close()
	return o.desired.Watch(ctx, o.registry)
}

const (
	defaultPauseTimeout = 30 * time.Second // how long running steps may take to end
	answerTimeout       = 5 * time.Second  // how long a worker may take to answer a call that waits for no step
)

// Outcome holds the status of one instance after a command, or the error.
type Outcome struct {
	Instance registry.Instance
	Status   *troupev1.InstanceStatus // nil when Err is set
	Err      error
}

// Pause pauses all instances of an agent concurrently and returns the outcomes, sorted by instance id. within
// bounds how long running steps may take to end (0 means 30 s). An instance that could not be paused accepts steps
// again, unless another Pause is still pending. Pause fails with not_found if the agent has no instance. It fails
// with system_network if the registry cannot be reached, in which case no worker was called.
func (o *Operator) Pause(ctx context.Context, agent, reason string, within time.Duration) ([]Outcome, error) {
	if within == 0 {
		within = defaultPauseTimeout
	}
	return o.applyToAll(ctx, agent, registry.Pause, reason, within, func(ctx context.Context, out *Outcome, _ registry.DesiredState) {
		key := out.Instance.Key()
		o.pendingPauses.add(key, 1)
		out.Status, out.Err = o.workers.call(ctx, out.Instance, pauseCall(reason))
		if others := o.pendingPauses.add(key, -1) > 0; out.Err != nil {
			o.resolveFailedPause(ctx, out, within, others)
		}
	})
}

// Resume lets all instances of an agent accept steps again. For a draining instance the outcome is
// instance_draining. But if its worker reports that it is not draining, the instance is resumed. Resume fails like
// Pause.
func (o *Operator) Resume(ctx context.Context, agent, reason string) ([]Outcome, error) {
	return o.applyToAll(ctx, agent, registry.Run, reason, answerTimeout, func(ctx context.Context, out *Outcome, before registry.DesiredState) {
		out.Status, out.Err = o.workers.call(ctx, out.Instance, resumeCall(reason))
		if out.Err != nil && !before.Kind.AllowsSteps() {
			o.recorder.replaceDesired(ctx, o.desired.Get(out.Instance.Key()), before)
		}
	})
}

// applyToAll records the desired state of all instances of an agent, and then calls do for all of them
// concurrently. do receives the desired state that was recorded before, and sets the outcome.
func (o *Operator) applyToAll(
	ctx context.Context, agent string, want registry.DesiredKind, reason string, within time.Duration,
	do func(context.Context, *Outcome, registry.DesiredState),
) ([]Outcome, error) {
	outcomes, err := o.newOutcomes(agent)
	if err != nil {
		return nil, err
	}
	o.rejectDraining(ctx, outcomes, want)
	before := make([]registry.DesiredState, len(outcomes))
	var desires []registry.DesiredState
	for i, out := range outcomes {
		if key := out.Instance.Key(); out.Err == nil {
			before[i] = o.desired.Get(key)
			desires = append(desires, registry.DesiredState{Key: key, Kind: want, Reason: reason, Since: time.Now()})
		}
	}
	if err := o.recorder.recordDesired(ctx, desires...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var doing sync.WaitGroup
	for i := range outcomes {
		if out := &outcomes[i]; out.Err == nil {
			doing.Go(func() {
				defer panics.Recover("operate", &out.Err)
				if do(ctx, out, before[i]); out.Err != nil {
					out.Status = nil
				}
			})
		}
	}
	doing.Wait()
	o.log.Info("desired state recorded", zap.String("agent", agent), zap.String("want", string(want)),
		zap.String("reason", reason), zap.Int("instances", len(desires)))
	return outcomes, nil
}

// rejectDraining sets the error of the instances that drain. If want is RUN, it first asks the worker. The worker
// may never have received the drain, because the orchestrator that recorded it died.
func (o *Operator) rejectDraining(ctx context.Context, outcomes []Outcome, want registry.DesiredKind) {
	var asking sync.WaitGroup
	for i := range outcomes {
		out := &outcomes[i]
		key := out.Instance.Key()
		if o.desired.Get(key).Kind != registry.Drain {
			continue
		}
		out.Err = failure.Newf(failure.InstanceDraining, "operate",
			"instance %s drains, and will not come back; if its worker does not drain, resume it", key.ID)
		if want == registry.Run && o.pendingDrains.add(key, 0) == 0 {
			asking.Go(func() {
				defer panics.Recover("operate", &out.Err)
				if in, ok := o.ConfirmIdentity(ctx, out.Instance); ok && in.State != lifecycle.ShuttingDown && in.State != lifecycle.Terminated {
					out.Err = nil
				}
			})
		}
	}
	asking.Wait()
}

// resolveFailedPause determines the real outcome of a failed pause. The instance may be paused although the answer
// was lost, or another Pause may still be pending. Otherwise, it makes the instance run again.
func (o *Operator) resolveFailedPause(ctx context.Context, out *Outcome, within time.Duration, others bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	late := failure.Is(out.Err, failure.SystemTimeout, failure.AgentTimeout)
	var status *troupev1.InstanceStatus
	var err error
	if !others {
		status, err = o.workers.awaitPauses(ctx, out.Instance)
	}
	then := "the instance takes steps as before"
	switch key := out.Instance.Key(); {
	case others || status.GetPausing():
		then = "another pause still waits for them"
	case err == nil && status.GetState() == troupev1.InstanceState_INSTANCE_STATE_PAUSED:
		out.Status, out.Err = status, nil
		return
	case err != nil && out.Instance.State == lifecycle.Paused: // as it has registered itself
	default:
		if recorded := o.desired.Get(key); recorded.Kind == registry.Pause {
			o.recorder.replaceDesired(ctx, recorded, runState(key))
		}
	}
	if late {
		out.Err = failure.Newf(failure.AgentTimeout, "operate", "steps still ran after %s; %s", within, then).Because(out.Err)
	}
}
