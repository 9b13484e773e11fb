// Package dispatch gives steps to instances: it finds one that takes the step, streams
// what happens there, and returns the result.
package dispatch

import (
	"cmp"
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Dispatcher gives steps to instances. Safe for concurrent use.
type Dispatcher struct {
	roster  *instances.Cache
	pool    *Pool
	wait    time.Duration
	policy  selection.Policy
	request selection.Request
	slots   *slots
	starts  *starts
	deaf    *deaf
	broken  *broken

	silence time.Duration // after which a step that was admitted is given up
}

// New returns a dispatcher. Wait is how long a step waits for an instance that takes it, while
// none of them works for this dispatcher.
func New(roster *instances.Cache, pool *Pool, wait time.Duration) *Dispatcher {
	d := &Dispatcher{
		roster: roster, pool: pool, wait: wait, slots: newSlots(), starts: newStarts(pool), deaf: newDeaf(),
		broken: newBroken(pool.telemetry.Log), silence: maxSilence,
	}
	return d.WithPolicy(selection.Policy{})
}

// WithPolicy returns the same dispatcher for steps whose instances are chosen by a policy. Without
// one they take turns (OC-16).
func (d *Dispatcher) WithPolicy(policy selection.Policy) *Dispatcher {
	other := *d
	other.policy = policy
	other.policy.Strategy = cmp.Or(policy.Strategy, selection.RoundRobin)
	return &other
}

// WithRequest returns the same dispatcher for steps of which decisions record for whom and for what they
// are made (contract OC-14).
func (d *Dispatcher) WithRequest(asked selection.Request) *Dispatcher {
	other := *d
	other.request = asked
	return &other
}

// Close ends what runs beside the steps. Steps have ended before.
func (d *Dispatcher) Close() { d.starts.close() }

// Handler is told what happens. An error of it ends the step.
type Handler struct {
	Waiting func(agent string) error               // nobody takes the step yet; at most once
	Started func(instance registry.Instance) error // an instance took it; once
	// Chosen is told why that instance was chosen, right before Started. It may be nil.
	Chosen func(selection.Decision) error
	// Equip is asked which tools the step may use at an instance, before that gets it; nil, and a nil
	// answer: all. Its error ends the step. It may be asked again for the next instance.
	Equip func(registry.Instance) (*troupev1.AllowedTools, error)
	Event func(*troupev1.Event) error
}

// Execute runs a step on an instance of its agent and returns the result, which holds the
// failure when the step failed. An instance that does not take the step has not begun it,
// and the next one is asked; those to avoid are not. While all are at capacity with steps of
// this dispatcher it waits its turn: steps that are not the first of their turn come before
// those that are, then those of a higher priority, and else whoever came first. Fails with no_worker when none took it in time
// and none works on such a step, and with a *LostError when the instance that took it did not bring it to an end.
func (d *Dispatcher) Execute(ctx context.Context, req *troupev1.ExecuteStepRequest, avoid []registry.Instance, h Handler) (*troupev1.StepResult, error) {
	agent := req.GetAgent()
	s := &search{
		Dispatcher: d, req: req, avoid: avoid, handler: h, patience: time.NewTimer(d.wait),
		counter: d.slots.turn(agent, d.policy.Strategy),
		waiter:  newWaiter(req.GetStep() > 1 || req.GetAttempt() > 1, d.policy.Strategy == selection.Manual || len(avoid) > 0),
	}
	s.waiter.priority = wire.PriorityFromProto(req.Priority) //nolint:protogetter // whether it is there counts
	defer s.patience.Stop()
	defer d.slots.leave(agent, s.waiter)
	waiting := false
	for {
		list, changed := d.roster.List(agent)
		d.slots.join(agent, s.waiter)
		result, taken, err := s.ask(ctx, list)
		if taken {
			return result, err
		}
		if ctx.Err() != nil {
			return nil, cmp.Or(err, ctx.Err())
		}
		if !waiting && !s.working {
			waiting = true
			if err := h.Waiting(agent); err != nil {
				return nil, err
			}
		}
		if err := s.rest(ctx, changed); err != nil {
			return nil, err
		}
		if s.over {
			return nil, s.nobody()
		}
	}
}

// retryPause is how long to wait before instances that refused are asked again.
const retryPause = 100 * time.Millisecond
