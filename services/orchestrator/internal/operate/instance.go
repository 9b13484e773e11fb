package operate

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Start starts an instance that registered before it was started, and returns its status once it is READY. It fails with
// not_found or user_invalid_input, like Drain, with the error of the start, and with system_network if the worker cannot be
// reached.
func (o *Operator) Start(ctx context.Context, id, agent string, req *troupev1.StartupRequest) (*troupev1.InstanceStatus, error) {
	in, err := o.findInstance(id, agent)
	if err != nil {
		return nil, err
	}
	return o.workers.call(ctx, in, func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.Startup(ctx, req)
		return resp.GetStatus(), err
	})
}

// Drain shuts down an instance. It gets no more steps, and running steps may end within the drain time (absent means
// the worker's own setting). Drain returns once the instance is TERMINATED. If ctx ends first, the drain continues
// in the background. agent may be empty if the id is unique among all agents.
//
// It fails with not_found, or with user_invalid_input if several agents have an instance with this id. It fails
// with instance_draining if this orchestrator is stopping. It fails with system_network if the registry cannot
// be reached, in which case the worker was not called. It also does so if the worker cannot be reached. The
// instance then gets no steps until it is resumed.
//
// A request with a state version is not recorded: the worker alone decides, so that a request that fails changes nothing.
func (o *Operator) Drain(ctx context.Context, id, agent string, req *troupev1.ShutdownRequest) (*troupev1.ShutdownResponse, error) {
	in, err := o.findInstance(id, agent)
	if err != nil {
		return nil, err
	}
	bound := maxDrainTime
	if drain := req.GetDrain(); drain != nil {
		bound = drain.AsDuration()
	}
	type answer struct {
		resp *troupev1.ShutdownResponse
		err  error
	}
	ended := make(chan answer, 1)
	if !o.background.start(ctx, bound+stopTime, func(ctx context.Context) {
		resp, err := o.drain(ctx, in, req)
		ended <- answer{resp, err}
	}) {
		return nil, failure.New(failure.InstanceDraining, "operate", "this orchestrator is stopping; ask another one")
	}
	select {
	case a := <-ended:
		return a.resp, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

const (
	maxDrainTime = 10 * time.Minute // the longest drain time of a worker
	stopTime     = 15 * time.Second // time for recording the drain, and for stopping after it
)

// drain records the desired state DRAIN and asks the worker to shut down.
func (o *Operator) drain(ctx context.Context, in registry.Instance, req *troupev1.ShutdownRequest) (resp *troupev1.ShutdownResponse, err error) {
	defer panics.Recover("operate", &err)
	o.pendingDrains.add(in.Key(), 1)
	defer o.pendingDrains.add(in.Key(), -1)
	if req.IfStateVersion == nil {
		desired := registry.DesiredState{Key: in.Key(), Kind: registry.Drain, Reason: req.GetReason(), Since: time.Now()}
		if err := o.recorder.recordDesired(ctx, desired); err != nil {
			return nil, err
		}
	}
	o.log.Info("draining", zap.String("agent", in.Agent), zap.String("instance", in.ID), zap.String("reason", req.GetReason()))
	_, err = o.workers.call(ctx, in, func(ctx context.Context, w troupev1.LifecycleServiceClient) (_ *troupev1.InstanceStatus, err error) {
		resp, err = w.Shutdown(ctx, req)
		return nil, err
	})
	return resp, err
}

// Description combines what the registry and the worker report about an instance.
type Description struct {
	Instance registry.Instance
	Status   *troupev1.InstanceStatus     // nil when Err is set
	Metrics  *troupev1.GetMetricsResponse // nil when Err is set
	Err      error                        // why the worker did not answer

	Instructions string // the agent's system prompt (empty if the worker does not tell it)
}

// Describe asks the worker of an instance for its status, its metrics and its agent's system prompt. If the worker does not answer, Describe
// still succeeds. It fails with not_found or user_invalid_input, like Drain.
func (o *Operator) Describe(ctx context.Context, id, agent string) (Description, error) {
	in, err := o.findInstance(id, agent)
	if err != nil {
		return Description{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	d := Description{Instance: in}
	d.Status, d.Err = o.workers.call(ctx, in, func(ctx context.Context, w troupev1.LifecycleServiceClient) (*troupev1.InstanceStatus, error) {
		resp, err := w.GetState(ctx, &troupev1.GetStateRequest{WithInstructions: true})
		if err != nil {
			return nil, err
		}
		d.Instructions = resp.GetInstructions()
		d.Metrics, err = w.GetMetrics(ctx, &troupev1.GetMetricsRequest{})
		return resp.GetStatus(), err
	})
	if d.Err != nil {
		d.Status, d.Metrics, d.Instructions = nil, nil, ""
	}
	return d, nil
}

// statusTimeout bounds how long all workers together may take to return their status.
const statusTimeout = time.Second

// Statuses returns the statuses of instances. It calls all workers concurrently. The status of a worker that does
// not answer in time is nil.
func (o *Operator) Statuses(ctx context.Context, instances []registry.Instance) []*troupev1.InstanceStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	statuses := make([]*troupev1.InstanceStatus, len(instances))
	var asking sync.WaitGroup
	for i, in := range instances {
		asking.Go(func() { statuses[i], _ = o.workers.call(ctx, in, getState) }) // a nil status reports the error
	}
	asking.Wait()
	return statuses
}

// IdentityError returns why this orchestrator sends an instance no steps: the process at its address is not a
// worker of its agent (guarantee S16). It is empty if no such problem is known.
func (o *Operator) IdentityError(in registry.Instance) string {
	return o.workers.pool.IdentityError(in)
}

// confirmTimeout bounds how long an instance may take to confirm itself.
const confirmTimeout = 2 * time.Second

// ConfirmIdentity asks the worker at the address of an instance whether it is this instance. It returns the instance with
// the state that the worker would register. An instance that registered as INITIALIZING stays so, whatever its
// worker reports, because it may not have reached its memory service yet.
func (o *Operator) ConfirmIdentity(ctx context.Context, in registry.Instance) (registry.Instance, bool) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	status, err := o.workers.call(ctx, in, getState)
	if err != nil || status.GetInstanceId() != "" && status.GetInstanceId() != in.ID {
		return in, false
	}
	switch now := instancewire.StateFromProto(status.GetState()); {
	case now != lifecycle.Ready && now != lifecycle.Busy:
		in.State = now
	case in.State != lifecycle.Initializing:
		in.State = lifecycle.Ready
	}
	return in, true
}
