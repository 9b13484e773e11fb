// Package operate is the operator's side of the lifecycle: pause and resume of an agent,
// drain and description of an instance. What is wanted is recorded in the registry first,
// so that no orchestrator routes there any more; then the worker is asked, and its answer
// is the truth.
package operate

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Operator carries out the verbs. Safe for concurrent use.
type Operator struct {
	roster     *instances.Cache
	desires    registry.Desires
	pool       *connection.Pool
	log        *zap.Logger
	background *background
	doubtful   chan struct{} // of 1: there is a doubt

	mu     sync.Mutex
	pauses map[registry.Key]int // Pauses that wait for the worker
	drains map[registry.Key]int // likewise
	doubts map[registry.Key]doubt
}

// New returns an operator of the instances that the roster knows. Run must follow.
func New(roster *instances.Cache, desires registry.Desires, pool *connection.Pool, log *zap.Logger) *Operator {
	return &Operator{
		roster: roster, desires: desires, pool: pool, log: log.Named("operate"),
		background: newBackground(), doubtful: make(chan struct{}, 1),
		pauses: map[registry.Key]int{}, drains: map[registry.Key]int{}, doubts: map[registry.Key]doubt{},
	}
}

// Run follows what operators want, takes back what shall not be recorded, and forgets what
// was wanted of instances that are gone, until ctx ends. With it ends what runs in the
// background.
func (o *Operator) Run(ctx context.Context) error {
	var tending sync.WaitGroup
	tending.Go(func() { o.tend(ctx) })
	tending.Go(func() { o.guard(ctx) })
	defer tending.Wait()
	defer o.background.close()
	return o.roster.Desired().Watch(ctx, o.desires)
}

// count adds to the number of calls that wait for an instance, and returns it.
func (o *Operator) count(calls map[registry.Key]int, key registry.Key, more int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls[key] += more
	if calls[key] == 0 {
		delete(calls, key)
	}
	return calls[key]
}

const (
	defaultPause = 30 * time.Second // how long running steps may take to end when nobody says
	answerTime   = 5 * time.Second  // of a worker that has nothing to wait for
)

// Outcome is what a verb led to at one instance.
type Outcome struct {
	Instance registry.Instance
	Status   *troupev1.InstanceStatus // nil when Err is set
	Err      error
}

// Pause pauses every instance of an agent, all at once, and returns what became of each, by
// id. Zero within means 30 s; the deadline of ctx may only shorten it. One that could not
// be paused takes steps as before, unless another Pause still waits for it. Modes: not_found
// when the agent has no instance; system_network when the registry is away, and then no
// worker was asked.
func (o *Operator) Pause(ctx context.Context, agent, reason string, within time.Duration) ([]Outcome, error) {
	if within == 0 {
		within = defaultPause
	}
	return o.each(ctx, agent, registry.Pause, reason, within, func(ctx context.Context, out *Outcome, _ registry.Desire) {
		key := out.Instance.Key()
		o.count(o.pauses, key, 1)
		out.Status, out.Err = o.ask(ctx, out.Instance, func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
			resp, err := w.Pause(ctx, &troupev1.PauseRequest{Reason: reason})
			return resp.GetStatus(), err
		})
		if others := o.count(o.pauses, key, -1) > 0; out.Err != nil {
			o.pauseFailed(ctx, out, within, others)
		}
	})
}

// Resume lets every instance of an agent take steps again, as Pause ends it. One that
// drains stays as it is: its outcome is instance_draining. One that shall drain and does not,
// by the word of its worker, is resumed.
func (o *Operator) Resume(ctx context.Context, agent, reason string) ([]Outcome, error) {
	return o.each(ctx, agent, registry.Run, reason, answerTime, func(ctx context.Context, out *Outcome, before registry.Desire) {
		out.Status, out.Err = o.ask(ctx, out.Instance, func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
			resp, err := w.Resume(ctx, &troupev1.ResumeRequest{Reason: reason})
			return resp.GetStatus(), err
		})
		if out.Err != nil && !before.Want.Routable() {
			o.takeBack(ctx, o.roster.Desired().Get(out.Instance.Key()), before)
		}
	})
}

// verb is what a worker is asked for.
type verb func(context.Context, troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error)

// each records what is wanted of the instances of an agent, and does it with all of them at
// once. do fills the outcome; it gets what was wanted before.
func (o *Operator) each(ctx context.Context, agent string, want registry.Want, reason string, within time.Duration, do func(context.Context, *Outcome, registry.Desire)) ([]Outcome, error) {
	outcomes, err := o.instancesOf(agent)
	if err != nil {
		return nil, err
	}
	o.refuseDraining(ctx, outcomes, want)
	before := make([]registry.Desire, len(outcomes))
	var desires []registry.Desire
	for i, out := range outcomes {
		if key := out.Instance.Key(); out.Err == nil {
			before[i] = o.roster.Desired().Get(key)
			desires = append(desires, registry.Desire{Key: key, Want: want, Reason: reason, Since: time.Now()})
		}
	}
	if err := o.want(ctx, desires...); err != nil {
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
	o.log.Info("operated", zap.String("agent", agent), zap.String("want", string(want)), zap.String("reason", reason), zap.Int("instances", len(desires)))
	return outcomes, nil
}

// refuseDraining sets the outcome of the instances that drain. One that shall drain may not
// have heard of it: whoever recorded that may have died first.
func (o *Operator) refuseDraining(ctx context.Context, outcomes []Outcome, want registry.Want) {
	var asking sync.WaitGroup
	for i := range outcomes {
		out := &outcomes[i]
		key := out.Instance.Key()
		if o.roster.Desired().Get(key).Want != registry.Drain {
			continue
		}
		out.Err = failure.Newf(failure.InstanceDraining, "operate", "instance %s drains, and will not come back; if its worker does not, resume ends that", key.ID)
		if want == registry.Run && o.count(o.drains, key, 0) == 0 {
			asking.Go(func() {
				defer panics.Recover("operate", &out.Err)
				if in, ok := o.Confirm(ctx, out.Instance); ok && in.State != lifecycle.ShuttingDown && in.State != lifecycle.Terminated {
					out.Err = nil
				}
			})
		}
	}
	asking.Wait()
}

// pauseFailed looks what became of a pause that failed: its answer may be lost and the pause
// done, or another may still wait. Otherwise the instance shall run.
func (o *Operator) pauseFailed(ctx context.Context, out *Outcome, within time.Duration, others bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	late := failure.Is(out.Err, failure.SystemTimeout, failure.AgentTimeout)
	var status *troupev1.InstanceStatus
	var err error
	if !others {
		status, err = o.settled(ctx, out.Instance)
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
		if recorded := o.roster.Desired().Get(key); recorded.Want == registry.Pause {
			o.takeBack(ctx, recorded, running(key))
		}
	}
	if late {
		out.Err = failure.Newf(failure.AgentTimeout, "operate", "steps still ran after %s; %s", within, then).Because(out.Err)
	}
}

// settleTime is how long a worker may take to hear that a Pause was given up.
const settleTime = time.Second

// settled is the status of an instance when no Pause waits there any more, or still one does.
func (o *Operator) settled(ctx context.Context, in registry.Instance) (*troupev1.InstanceStatus, error) {
	enough := time.NewTimer(settleTime)
	defer enough.Stop()
	ticks := time.NewTicker(settleTime / 50)
	defer ticks.Stop()
	for {
		status, err := o.ask(ctx, in, state)
		if err != nil || !status.GetPausing() {
			return status, err
		}
		select {
		case <-ticks.C:
		case <-enough.C:
			return status, nil
		case <-ctx.Done():
			return status, nil
		}
	}
}

// ask has the worker of an instance do it.
func (o *Operator) ask(ctx context.Context, in registry.Instance, do verb) (*troupev1.InstanceStatus, error) {
	conn, release, err := o.pool.Get(ctx, in)
	if err != nil {
		return nil, err
	}
	defer release()
	status, err := do(ctx, troupev1.NewLifecycleServiceClient(conn))
	if err = grpcfailure.FromStatus("operate", err); failure.Is(err, failure.SystemNetwork) {
		err = failure.Newf(failure.SystemNetwork, "operate", "the worker at %s went away before it answered", in.Address).Because(err)
	}
	return status, err
}
