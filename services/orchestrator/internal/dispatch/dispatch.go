// Package dispatch runs steps at instances: it finds an instance that accepts the step, streams what
// happens there, and returns the result.
//
//	            step
//	             │
//	             ▼
//	┌── queue ────────────┐   no slot, or other steps come first: wait
//	│ place in wait list  │──────────────────────────────────────────────┐
//	└────────┬────────────┘ ◀─── a slot is free, an instance came, 100 ms ┘
//	         ▼
//	┌── selection ────────┐   by the policy of the step, among the instances that are
//	│ which instance      │   not excluded: backoff, open breaker, lost the step before
//	└────────┬────────────┘
//	         ▼
//	┌── startup ──────────┐   the instance was never started: begin that, try the next one
//	└────────┬────────────┘
//	         ▼
//	┌── breakers ─────────┐   the instance is on trial with another step: try the next one
//	└────────┬────────────┘
//	         ▼
//	┌── connection ───────┐   no answer, or a worker of another agent: back off, try the next one
//	└────────┬────────────┘
//	         ▼
//	┌── attempt ──────────┐   rejected: back off, try the next one
//	│ ExecuteStep         │   silent or broken off: LostError, and the turn takes over
//	└────────┬────────────┘
//	         ▼
//	       result
//
// Each box except the last is a package whose type is independent of the others. Dispatcher holds
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

// Dispatcher dispatches steps to instances. Safe for concurrent use.
type Dispatcher struct {
	instances *instances.Cache
	authority *routing.Authority
	queue     *queue.Queue
	backoffs  *backoff.Backoffs
	starter   *startup.Starter
	breakers  *breakers.Breakers
	pool      *connection.Pool

	instanceTimeout time.Duration // how long a step waits while no instance runs a step of this dispatcher or is paused
	maxSilence      time.Duration // silence after which an accepted step counts as lost

	instancePolicy selection.Policy
	routingRequest selection.Request
}

// maxSilence is how long the stream of an accepted step may be silent before the step counts as lost (guarantee
// F2). A worker sends something every 2 s.
const maxSilence = 6 * time.Second

// New returns a dispatcher. patience is how long a step waits for an instance that accepts it. The time only runs
// while no instance works on a step of this dispatcher and none is paused.
func New(cache *instances.Cache, pool *connection.Pool, patience time.Duration) *Dispatcher {
	authority := routing.NewAuthority()
	d := &Dispatcher{
		instances: cache, authority: authority, queue: queue.New(authority.ChooseInstance), backoffs: backoff.New(),
		starter: startup.NewStarter(pool.Get), breakers: breakers.New(pool.Log()), pool: pool,
		instanceTimeout: patience, maxSilence: maxSilence,
	}
	return d.WithPolicy(selection.Policy{})
}

// WithPolicy returns a copy of the dispatcher that selects instances by the given policy. The default is round
// robin (OC-16).
func (d *Dispatcher) WithPolicy(policy selection.Policy) *Dispatcher {
	other := *d
	other.instancePolicy = policy
	other.instancePolicy.Strategy = cmp.Or(policy.Strategy, selection.RoundRobin)
	return &other
}

// WithRequest returns a copy of the dispatcher for the steps of one request. Its decisions record the request
// (contract OC-14).
func (d *Dispatcher) WithRequest(request selection.Request) *Dispatcher {
	other := *d
	other.routingRequest = request
	return &other
}

// Authority returns the routing authority of this dispatcher. Turns use the same one.
func (d *Dispatcher) Authority() *routing.Authority { return d.authority }

// Close stops waiting for instances that are starting. All steps must have ended before.
func (d *Dispatcher) Close() { d.starter.Close() }

// Handler has the callbacks of a step. If a callback returns an error, the step ends with this error.
type Handler struct {
	// OnWaiting is called at most once, when the step has to wait for an instance. paused says that it waits for one that
	// is paused.
	OnWaiting func(agent string, paused bool) error
	// OnChosen receives the routing decision, right before OnStarted. It may be nil.
	OnChosen func(selection.Decision) error
	// OnStarted is called once, when an instance has accepted the step.
	OnStarted func(instance registry.Instance) error
	// SelectTools returns the tools that the step may use at an instance (nil means all). It is called before the
	// instance gets the step, and again for each further instance. It may be nil.
	SelectTools func(registry.Instance) (*troupev1.AllowedTools, error)
	OnEvent     func(*troupev1.Event) error
	// EarlierEntries returns at most limit of the latest events of earlier turns, for a worker that asks for them.
	EarlierEntries func(ctx context.Context, limit int) ([]*troupev1.Event, error)
}

// Execute runs a step on an instance of its agent. It returns the result, which holds the failure if the step
// failed. When an instance rejects the step, Execute tries the next one. It never tries the instances in avoid.
// While all instances are full, the step waits in the queue. While one is paused, it waits until the instance is resumed
// or ctx ends.
//
// It fails with no_worker when no instance accepted the step in time, none works on a step of this
// dispatcher, and none is paused. It fails with a *LostError when an instance accepted the step but did not finish it.
func (d *Dispatcher) Execute(ctx context.Context, req *troupev1.ExecuteStepRequest, avoid []registry.Instance, h Handler) (*troupev1.StepResult, error) {
	s := d.newSearch(req, avoid, h)
	defer s.close()
	waiting := false
	for {
		list, changed := d.instances.List(req.GetAgent())
		s.useList(list)
		d.queue.Join(req.GetAgent(), s.waiter)
		r := s.runRound(ctx, list)
		if r.end == taken {
			return r.result, r.err
		}
		if ctx.Err() != nil {
			return nil, cmp.Or(r.err, ctx.Err())
		}
		if !waiting && !r.maySucceedLater {
			waiting = true
			if err := h.OnWaiting(req.GetAgent(), s.hasPausedInstance(list)); err != nil {
				return nil, err
			}
		}
		if r.end != expired {
			var err error
			if r.end, err = s.awaitInstance(ctx, changed); err != nil {
				return nil, err
			}
		}
		if r.end == expired {
			return nil, s.noWorkerError(r.maySucceedLater)
		}
	}
}
