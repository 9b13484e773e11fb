package dispatch

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/breakers"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/queue"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// search finds an instance that accepts one step. Only one goroutine uses it.
type search struct {
	*Dispatcher
	req               *troupev1.ExecuteStepRequest
	avoided           []registry.Instance
	handler           Handler
	waiter            *queue.Waiter
	roundRobinCounter uint64          // fixed for the whole search, so that a rejection does not advance the round robin
	list              *instances.List // used by the current round, or the last one
	timeoutTimer      *time.Timer     // fires when instanceTimeout has passed

	lastErr            error              // why an instance was skipped or did not accept the step
	lastFailedDecision selection.Decision // the latest decision that found no target
}

func (d *Dispatcher) newSearch(req *troupev1.ExecuteStepRequest, avoid []registry.Instance, h Handler) *search {
	return &search{
		Dispatcher: d, req: req, avoided: avoid, handler: h, timeoutTimer: time.NewTimer(d.instanceTimeout),
		roundRobinCounter: d.queue.NextCounter(req.GetAgent(), d.instancePolicy.Strategy),
		waiter: queue.NewWaiter(queue.Order{
			HasBegun:    req.GetStep() > 1 || req.GetAttempt() > 1,
			Priority:    wire.PriorityFromProto(req.Priority), //nolint:protogetter // whether it is set counts
			IsSelective: d.instancePolicy.Strategy == selection.Manual || len(avoid) > 0,
		}),
	}
}

func (s *search) close() {
	s.queue.Leave(s.req.GetAgent(), s.waiter)
	s.timeoutTimer.Stop()
}

// useList sets the list of the next round. If that shows the end of a pause, the timeout begins again.
func (s *search) useList(list *instances.List) {
	if s.list != nil && s.hasPausedInstance(s.list) && !s.hasPausedInstance(list) {
		s.timeoutTimer.Reset(s.instanceTimeout)
	}
	s.list = list
}

// roundEnd is the reason why a round or a wait ended.
type roundEnd int

const (
	exhausted   roundEnd = iota // no instance accepts the step now
	taken                       // an instance accepted the step, or an error ended it
	interrupted                 // a slot became free, possibly at an instance that this round has already tried
	expired                     // no instance accepted the step in time
)

// roundResult is the outcome of one pass over the instances.
type roundResult struct {
	end             roundEnd
	result          *troupev1.StepResult // result of the step if an instance accepted it
	err             error
	maySucceedLater bool // some instance is available but cannot accept the step now
}

// runRound tries the instances until one accepts the step, in the order of the routing decisions. It stops early
// when a slot becomes free or the timeout passes, because an instance that does not answer takes time.
func (s *search) runRound(ctx context.Context, list *instances.List) (r roundResult) {
	out, forgot := s.findExcluded(), false
	for first := true; ; first = false {
		if !first {
			if r.end = s.checkInterrupt(); r.end != exhausted {
				r.maySucceedLater = r.maySucceedLater || r.end == interrupted
				return r
			}
		}
		in, decision, ok := s.queue.TakeSlot(s.req.GetAgent(), list, selection.Input{
			Request: s.routingRequest, Policy: s.instancePolicy, Session: s.req.GetSessionId(), Counter: s.roundRobinCounter, Excluded: out,
		}, s.waiter)
		if !ok {
			s.lastFailedDecision = decision
			r.maySucceedLater = r.maySucceedLater || decision.MaySucceedLater
			return r
		}
		if in.State == lifecycle.Uninitialized {
			if !forgot {
				s.starter.ForgetUnneeded(s.instances.Instances())
				forgot = true
			}
			if s.starter.Begin(in).Err() != nil {
				s.returnSlot(in)
				s.startUninitialized(list, in, out)
				continue
			}
		}
		r.maySucceedLater = true
		done := s.breakers.Allow(in)
		if done == nil {
			s.returnSlot(in)
			out.add(instances.IncarnationOf(in), breakerAvailability(breakers.InTrial), errInTrial)
			continue
		}
		result, accepted, err := s.attemptStep(ctx, in, decision, done)
		if accepted {
			return roundResult{end: taken, result: result, err: err}
		}
		if ctx.Err() != nil {
			return roundResult{err: err}
		}
		s.lastErr = err
		if isRejection(err) {
			s.backoffs.Add(in, retryPause, err) // it would reject other steps, too
		}
		out.add(instances.IncarnationOf(in), backoffAvailability(err), err)
	}
}

// attemptStep gives the step to an instance. It always returns the slot afterwards, even if a handler panics. The
// turn recovers the panic, and the dispatcher stays in use.
func (s *search) attemptStep(
	ctx context.Context, in registry.Instance, why selection.Decision, done breakers.ReportFunc,
) (result *troupev1.StepResult, accepted bool, err error) {
	began := false
	defer func() {
		done(breakerResult(ctx, result, accepted, err))
		if began {
			s.queue.RecordStepEnded(in)
		}
		if accepted {
			s.backoffs.Cancel(in, isRejection) // it has a slot again
		}
		if accepted || began {
			s.queue.ReleaseSlot(in, true)
		} else {
			s.returnSlot(in)
		}
	}()
	if s.handler.SelectTools != nil {
		if s.req.Tools, err = s.handler.SelectTools(in); err != nil {
			return nil, true, err
		}
	}
	h := s.handler
	h.OnStarted = func(in registry.Instance) error {
		s.queue.RecordStepBegan(in)
		began = true
		if h.OnChosen != nil {
			if err := h.OnChosen(why); err != nil {
				return err
			}
		}
		return s.handler.OnStarted(in)
	}
	return s.tryInstance(ctx, in, s.req, h)
}

// returnSlot returns a slot that was not used. It puts the step back at its position in the wait list.
func (s *search) returnSlot(in registry.Instance) {
	s.queue.ReleaseSlot(in, false)
	s.queue.Join(in.Agent, s.waiter)
}

// startUninitialized begins to start all instances that were never started, because no other instance has a slot.
// If the policy names an instance, it starts only that one. Instances that are not started yet are excluded from
// this round.
func (s *search) startUninitialized(list *instances.List, named registry.Instance, out exclusions) {
	for _, in := range list.Instances {
		if in.State != lifecycle.Uninitialized || s.instancePolicy.Strategy == selection.Manual && in.ID != named.ID {
			continue
		}
		if err := s.starter.Begin(in).Err(); err != nil {
			s.lastErr = err
			out.add(instances.IncarnationOf(in), selection.Starting, err)
		}
	}
}

// noWorkerError returns the error for a step that no instance accepted. maybeLater is true if an instance might
// accept it later.
func (s *search) noWorkerError(maybeLater bool) error {
	why := "none is ready"
	switch {
	case (s.instancePolicy.Strategy == selection.Manual || s.instancePolicy.Strategy == selection.Capability) && s.lastFailedDecision.Reason != "":
		why = s.lastFailedDecision.Reason
	case s.lastErr != nil && (!maybeLater || failure.Is(s.lastErr, failure.PolicySecurity)):
		why += ": " + failure.PlainMessage(s.lastErr)
	case maybeLater:
		why = "all are at capacity, reject it, fail their steps, or cannot be reached"
	case len(s.avoided) > 0:
		why = "none is ready but those that lost it before"
	}
	return failure.Newf(failure.NoWorker, "dispatch", "no instance of agent %s took the step within %s: %s", s.req.GetAgent(), s.instanceTimeout, why).
		With("agent", s.req.GetAgent()).Because(s.lastErr)
}
