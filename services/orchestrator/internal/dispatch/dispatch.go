// Package dispatch gives steps to instances: it finds an instance that takes the step, streams what
// happens there, and returns the result.
//
//	            step
//	             │
//	             ▼
//	┌── queue ────────────┐   no slot, or other steps come first: wait
//	│ position in the line│──────────────────────────────────────────────┐
//	└────────┬────────────┘ ◀─── a slot is free, an instance came, 100 ms ┘
//	         ▼
//	┌── selection ────────┐   by the policy of the step, among the instances that are
//	│ which instance      │   not excluded: backoff, open breaker, lost the step before
//	└────────┬────────────┘
//	         ▼
//	┌── startup ──────────┐   the instance was never started: begin that, ask the next one
//	└────────┬────────────┘
//	         ▼
//	┌── breakers ─────────┐   the instance is on trial with another step: ask the next one
//	└────────┬────────────┘
//	         ▼
//	┌── connection ───────┐   no answer, or a worker of another agent: back off, ask the next one
//	└────────┬────────────┘
//	         ▼
//	┌── attempt ──────────┐   rejected: back off, ask the next one
//	│ ExecuteStep         │   silent or broken off: LostError, and the turn takes over
//	└────────┬────────────┘
//	         ▼
//	       result
//
// Each box but the last is a package with a type that knows nothing of the others. Dispatcher holds
// one of each, and Execute goes through them from top to bottom.
package dispatch

import (
	"cmp"
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/backoff"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/breakers"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/queue"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/startup"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Dispatcher gives steps to instances. Safe for concurrent use.
type Dispatcher struct {
	instances *instances.Cache
	authority *routing.Authority
	queue     *queue.Queue
	backoffs  *backoff.Backoffs
	starter   *startup.Starter
	breakers  *breakers.Breakers
	pool      *connection.Pool

	patience   time.Duration // how long a step waits while no instance works for this dispatcher
	maxSilence time.Duration // after which a step that an instance took is lost

	policy  selection.Policy
	request selection.Request
}

// maxSilence is how long the stream of a step that an instance took may be silent (guarantee F2). A
// worker sends something every 2 s.
const maxSilence = 6 * time.Second

// New returns a dispatcher. patience is how long a step waits for an instance that takes it, while
// no instance works for this dispatcher.
func New(cache *instances.Cache, pool *connection.Pool, patience time.Duration) *Dispatcher {
	authority := routing.NewAuthority()
	d := &Dispatcher{
		instances: cache, authority: authority, queue: queue.New(authority.Instance), backoffs: backoff.New(),
		starter: startup.NewStarter(pool.Get), breakers: breakers.New(pool.Log()), pool: pool,
		patience: patience, maxSilence: maxSilence,
	}
	return d.WithPolicy(selection.Policy{})
}

// WithPolicy returns the same dispatcher for steps whose instances are selected by a policy. The
// default is that instances take turns (OC-16).
func (d *Dispatcher) WithPolicy(policy selection.Policy) *Dispatcher {
	other := *d
	other.policy = policy
	other.policy.Strategy = cmp.Or(policy.Strategy, selection.RoundRobin)
	return &other
}

// WithRequest returns the same dispatcher for the steps of a request. Their decisions record the request
// (contract OC-14).
func (d *Dispatcher) WithRequest(request selection.Request) *Dispatcher {
	other := *d
	other.request = request
	return &other
}

// Authority returns the routing authority of this dispatcher, which the turns use as well.
func (d *Dispatcher) Authority() *routing.Authority { return d.authority }

// Close stops waiting for instances that start. The caller must have ended all steps before.
func (d *Dispatcher) Close() { d.starter.Close() }

// Handler receives the events of a step. An error that one of its functions returns ends the step.
type Handler struct {
	// Waiting is called at most once, when no instance takes the step yet.
	Waiting func(agent string) error
	// Chosen receives why an instance was selected, right before Started. It may be nil.
	Chosen func(selection.Decision) error
	// Started is called once, when an instance took the step.
	Started func(instance registry.Instance) error
	// Equip returns the tools that the step may use at an instance, before that gets it (nil means
	// all). It may be called again for the next instance. It may be nil.
	Equip func(registry.Instance) (*troupev1.AllowedTools, error)
	Event func(*troupev1.Event) error
}

// Execute runs a step on an instance of its agent and returns the result, which holds the failure
// when the step failed. An instance that rejects the step has not begun it, and the next one is
// asked. Instances to avoid are never asked. While all instances have as many steps of this
// dispatcher as they take, the step waits in the queue.
//
// It fails with no_worker when no instance took the step in time and none works on such a step. It
// fails with a *LostError when the instance that took the step did not end it.
func (d *Dispatcher) Execute(ctx context.Context, req *troupev1.ExecuteStepRequest, avoid []registry.Instance, h Handler) (*troupev1.StepResult, error) {
	s := d.newSearch(req, avoid, h)
	defer s.close()
	waiting := false
	for {
		list, changed := d.instances.List(req.GetAgent())
		d.queue.Join(req.GetAgent(), s.waiter)
		r := s.round(ctx, list)
		if r.end == taken {
			return r.result, r.err
		}
		if ctx.Err() != nil {
			return nil, cmp.Or(r.err, ctx.Err())
		}
		if !waiting && !r.maybeLater {
			waiting = true
			if err := h.Waiting(req.GetAgent()); err != nil {
				return nil, err
			}
		}
		if r.end != expired {
			var err error
			if r.end, err = s.wait(ctx, changed); err != nil {
				return nil, err
			}
		}
		if r.end == expired {
			return nil, s.noWorker(r.maybeLater)
		}
	}
}
