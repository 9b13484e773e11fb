// Package dispatch gives steps to instances: it finds one that takes the step, streams
// what happens there, and returns the result.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/lifecycle"
	"github.com/troupe-dev/troupe/pkg/registry"
	"github.com/troupe-dev/troupe/pkg/rpc"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
)

// Dispatcher gives steps to instances. Safe for concurrent use.
type Dispatcher struct {
	roster *routing.Roster
	pool   *Pool
	wait   time.Duration
	slots  *slots
	starts *starts
}

// New returns a dispatcher. Wait is how long a step waits for an instance that takes it.
func New(roster *routing.Roster, pool *Pool, wait time.Duration) *Dispatcher {
	return &Dispatcher{roster: roster, pool: pool, wait: wait, slots: newSlots(), starts: newStarts(pool)}
}

// Close ends what runs beside the steps. Steps have ended before.
func (d *Dispatcher) Close() { d.starts.close() }

// Handler is told what happens. An error of it ends the step.
type Handler struct {
	Waiting func(agent string) error               // nobody takes the step yet; at most once
	Started func(instance registry.Instance) error // an instance took it; once
	Event   func(*troupev1.Event) error
}

// Execute runs a step on an instance of its agent and returns the result, which holds the
// failure when the step failed. An instance that does not take the step has not begun it,
// and the next one is asked. Fails with no_worker when none took it in time; with
// system_network when the instance went away while it worked: then the step may have been
// committed.
func (d *Dispatcher) Execute(ctx context.Context, req *troupev1.ExecuteStepRequest, h Handler) (*troupev1.StepResult, error) {
	patience := time.NewTimer(d.wait)
	defer patience.Stop()
	waiting := false
	var refusal error
	for {
		freed := d.slots.next() // before the look around, so that nothing is missed
		candidates, changed := d.roster.Candidates(req.GetAgent())
		working := false // somebody could take a step, if not this one now
		for _, in := range candidates {
			if err := d.start(in); err != nil {
				refusal = err
				continue
			}
			working = true
			if !d.slots.take(in) {
				continue
			}
			result, taken, err := d.try(ctx, in, req, h)
			d.slots.give(in, taken)
			if taken || ctx.Err() != nil {
				return result, err
			}
			refusal = err
		}
		if !waiting && !working {
			waiting = true
			if err := h.Waiting(req.GetAgent()); err != nil {
				return nil, err
			}
		}
		again := time.NewTimer(retryPause)
		select {
		case <-freed:
		case <-changed:
		case <-again.C:
		case <-patience.C:
			again.Stop()
			return nil, d.nobody(req.GetAgent(), working, refusal)
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		}
		again.Stop()
	}
}

// retryPause is how long to wait before instances that refused are asked again.
const retryPause = 100 * time.Millisecond

// start says why an instance is not up yet; nil when it is. The first to ask starts it.
func (d *Dispatcher) start(in registry.Instance) error {
	if in.State != lifecycle.Uninitialized {
		return nil
	}
	d.starts.keep(d.roster.Instances())
	return d.starts.begun(in).outcome()
}

func (d *Dispatcher) nobody(agent string, working bool, refusal error) error {
	why := "none is ready"
	switch {
	case !working && refusal != nil:
		why += ": " + failure.Plain(refusal)
	case working:
		why = "all are at capacity, refuse it, or cannot be reached"
	}
	return failure.Newf(failure.NoWorker, "dispatch", "no instance of agent %s took the step within %s: %s", agent, d.wait, why).
		With("agent", agent).Because(refusal)
}

// try reports whether the instance took the step.
func (d *Dispatcher) try(ctx context.Context, in registry.Instance, req *troupev1.ExecuteStepRequest, h Handler) (_ *troupev1.StepResult, taken bool, _ error) {
	conn, release, err := d.pool.Get(ctx, in.Address)
	if err != nil {
		return nil, false, err
	}
	defer release()
	ctx, cancel := behind(ctx)
	defer cancel()
	stream, err := troupev1.NewAgentServiceClient(conn).ExecuteStep(ctx, req)
	if err != nil {
		return nil, false, failure.FromStatus("dispatch", err)
	}
	// A worker sends the header when it has admitted the step.
	if header, _ := stream.Header(); header == nil {
		_, err := stream.Recv()
		err = failure.FromStatus("dispatch", err)
		return nil, !refused(err), brokenOff(in, err)
	}
	if err := h.Started(in); err != nil {
		return nil, true, err
	}
	result, err := follow(stream, h)
	return result, true, brokenOff(in, err)
}

// lag is by how much a worker's deadline is behind the step's.
const lag = time.Second

// behind returns a context that ends with ctx, and whose deadline is a little later: it is
// this side that ends a step, and says why, and not the clock of the worker.
func behind(ctx context.Context) (context.Context, context.CancelFunc) {
	late, done := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		late, done = context.WithDeadline(late, deadline.Add(lag))
	}
	late, cancel := context.WithCancel(late)
	stop := context.AfterFunc(ctx, cancel)
	return late, func() { stop(); cancel(); done() }
}

// refused reports whether the instance said that it did not begin the step.
func refused(err error) bool {
	return failure.Is(err, failure.InstanceFull, failure.InstancePaused, failure.InstanceDraining, failure.AgentState)
}

// errNoResult is a worker's breach of the contract.
var errNoResult = failure.New(failure.AgentContract, "dispatch", "the worker ended the step without a result")

// follow hands events on until the result.
func follow(stream troupev1.AgentService_ExecuteStepClient, h Handler) (*troupev1.StepResult, error) {
	for {
		item, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errNoResult
		case err != nil:
			return nil, failure.FromStatus("dispatch", err)
		}
		if err := rpc.Validate(item); err != nil {
			return nil, failure.New(failure.AgentContract, "dispatch", "the worker broke the contract: "+failure.Plain(err))
		}
		switch {
		case item.GetResult() != nil:
			return item.GetResult(), nil
		case item.GetEvent() != nil:
			if err := h.Event(item.GetEvent()); err != nil {
				return nil, err
			}
		}
	}
}

// brokenOff says which instance a step was lost with.
func brokenOff(in registry.Instance, err error) error {
	if !failure.Is(err, failure.SystemNetwork) {
		return err
	}
	return failure.Newf(failure.SystemNetwork, "dispatch", "instance %s of agent %s went away while it worked", in.ID, in.Agent).
		With("instance_id", in.ID).Because(fmt.Errorf("at %s: %w", in.Address, err))
}
