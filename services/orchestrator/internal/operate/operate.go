// Package operate is the operator's side of the lifecycle: pause and resume of an agent,
// drain and description of an instance. What is wanted is recorded in the registry first,
// so that no orchestrator routes there any more; then the worker is asked, and its answer
// is the truth.
package operate

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
)

// Operator carries out the verbs. Safe for concurrent use.
type Operator struct {
	roster  *routing.Roster
	desires registry.Desires
	pool    *dispatch.Pool
	log     *zap.Logger
}

// New returns an operator of the instances that the roster knows.
func New(roster *routing.Roster, desires registry.Desires, pool *dispatch.Pool, log *zap.Logger) *Operator {
	return &Operator{roster: roster, desires: desires, pool: pool, log: log.Named("operate")}
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
// be paused gets steps as before. Modes: not_found when the agent has no instance;
// system_network when the registry is away, and then no worker was asked.
func (o *Operator) Pause(ctx context.Context, agent, reason string, within time.Duration) ([]Outcome, error) {
	if within == 0 {
		within = defaultPause
	}
	return o.each(ctx, agent, registry.Pause, reason, within, func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.Pause(ctx, &troupev1.PauseRequest{Reason: reason})
		return resp.GetStatus(), err
	})
}

// Resume lets every instance of an agent take steps again, as Pause ends it. One that
// drains stays as it is: its outcome is instance_draining.
func (o *Operator) Resume(ctx context.Context, agent, reason string) ([]Outcome, error) {
	return o.each(ctx, agent, registry.Run, reason, answerTime, resume(reason))
}

type verb func(context.Context, troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error)

func resume(reason string) verb {
	return func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.Resume(ctx, &troupev1.ResumeRequest{Reason: reason})
		return resp.GetStatus(), err
	}
}

// each records what is wanted of the instances of an agent, asks their workers, and takes
// the record back where a worker did not do it.
func (o *Operator) each(ctx context.Context, agent string, want registry.Want, reason string, within time.Duration, do verb) ([]Outcome, error) {
	outcomes, err := o.instancesOf(agent)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var desires []registry.Desire
	before := make([]registry.Desire, len(outcomes))
	for i := range outcomes {
		key := outcomes[i].Instance.Key()
		if before[i] = o.roster.Desire(key); before[i].Want == registry.Drain {
			outcomes[i].Err = failure.Newf(failure.InstanceDraining, "operate", "instance %s drains, and will not come back", key.ID)
			continue
		}
		desires = append(desires, registry.Desire{Key: key, Want: want, Reason: reason, Since: now})
	}
	if err := o.want(ctx, desires...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var asking sync.WaitGroup
	for i := range outcomes {
		if out := &outcomes[i]; out.Err == nil {
			asking.Go(func() {
				if out.Status, out.Err = o.ask(ctx, out.Instance, do); out.Err != nil {
					out.Status = nil
					if want == registry.Pause && failure.Is(out.Err, failure.SystemTimeout) {
						out.Err = failure.Newf(failure.AgentTimeout, "operate", "steps still ran after %s; the instance takes steps as before", within).Because(out.Err)
					}
					o.takeBack(ctx, out.Instance, want, before[i])
				}
			})
		}
	}
	asking.Wait()
	o.log.Info("operated", zap.String("agent", agent), zap.String("want", string(want)), zap.String("reason", reason), zap.Int("instances", len(desires)))
	return outcomes, nil
}

// instancesOf returns an empty outcome for each instance of an agent.
func (o *Operator) instancesOf(agent string) ([]Outcome, error) {
	var outcomes []Outcome
	var others []string
	for _, in := range o.roster.Instances() {
		if in.Agent == agent {
			outcomes = append(outcomes, Outcome{Instance: in})
		} else if !slices.Contains(others, in.Agent) {
			others = append(others, in.Agent)
		}
	}
	if len(outcomes) == 0 {
		return nil, failure.Newf(failure.NotFound, "operate", "no instance of an agent %q is registered; there are instances of: %s", agent, listed(others))
	}
	return outcomes, nil
}

// find returns the instance of that id. agent may be empty when only one agent has it.
func (o *Operator) find(id, agent string) (registry.Instance, error) {
	var found []registry.Instance
	var ids, agents []string
	for _, in := range o.roster.Instances() {
		if agent != "" && in.Agent != agent {
			continue
		}
		ids = append(ids, in.ID)
		if in.ID == id {
			found, agents = append(found, in), append(agents, in.Agent)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		of := ""
		if agent != "" {
			of = " of agent " + agent
		}
		return registry.Instance{}, failure.Newf(failure.NotFound, "operate", "no instance%s is called %q; there are: %s", of, id, listed(ids))
	default:
		return registry.Instance{}, failure.Newf(failure.UserInvalidInput, "operate", "instances of several agents are called %q; name the agent: %s", id, listed(agents))
	}
}

// listed is some of the names, for a person.
func listed(names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + ", …"
	default:
		return strings.Join(names, ", ")
	}
}

// want records what is wanted; this orchestrator's routing knows it when it returns.
func (o *Operator) want(ctx context.Context, desires ...registry.Desire) error {
	if len(desires) == 0 {
		return nil
	}
	if err := o.desires.Want(ctx, desires...); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return failure.New(failure.SystemNetwork, "operate", "the registry does not answer, so nothing was asked of any worker; try again when it is back").Because(err)
	}
	o.roster.Want(desires...)
	return nil
}

// takeBack records again what was wanted before. When that cannot be recorded, the
// instance gets no steps until the verb is repeated or the agent is resumed.
func (o *Operator) takeBack(ctx context.Context, in registry.Instance, want registry.Want, before registry.Desire) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	if before.Want == "" {
		before = registry.Desire{Key: in.Key(), Want: registry.Run, Since: time.Now()}
	}
	log := o.log.With(zap.String("agent", in.Agent), zap.String("instance", in.ID))
	if want == registry.Pause && before.Want == registry.Run { // its answer may be lost and the pause done
		if _, err := o.ask(ctx, in, resume("the pause failed")); err != nil {
			log.Info("a pause that failed could not be ended", zap.Error(err))
		}
	}
	if err := o.want(ctx, before); err != nil {
		log.Warn("what is wanted of an instance could not be taken back", zap.Error(err))
	}
}

// ask has the worker of an instance do it.
func (o *Operator) ask(ctx context.Context, in registry.Instance, do verb) (*troupev1.InstanceStatus, error) {
	conn, release, err := o.pool.Get(ctx, in.Address)
	if err != nil {
		return nil, err
	}
	defer release()
	status, err := do(ctx, troupev1.NewLifecycleServiceClient(conn))
	if err = failure.FromStatus("operate", err); failure.Is(err, failure.SystemNetwork) {
		err = failure.Newf(failure.SystemNetwork, "operate", "the worker at %s went away before it answered", in.Address).Because(err)
	}
	return status, err
}
