package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// search looks for an instance that takes a step. One goroutine uses it.
type search struct {
	*Dispatcher
	req      *troupev1.ExecuteStepRequest
	avoid    []registry.Instance
	counter  uint64 // one for the whole search: to ask again is not the next one's turn
	handler  Handler
	patience *time.Timer
	waiter   *waiter

	over    bool               // the patience has ended
	works   bool               // an instance has begun the step
	working bool               // somebody could take the step, if not now
	refusal error              // the last that was heard
	last    selection.Decision // that nobody can have it
}

// ask goes through the instances in the order in which routing decides until one takes the
// step. It stops early when a place became free, which may be at one that it has passed, and
// when the patience ends; to ask one that does not answer takes time.
func (s *search) ask(ctx context.Context, list *instances.List) (_ *troupev1.StepResult, taken bool, _ error) {
	s.working = false
	out, swept := s.excluded(), false
	for first := true; ; first = false {
		if !first && s.interrupted() {
			return nil, false, nil
		}
		in, decision, ok := s.slots.take(s.req.GetAgent(), list, selection.Input{
			Request: s.request, Policy: s.policy, Session: s.req.GetSessionId(), Counter: s.counter, Out: out,
		}, s.waiter)
		if !ok {
			s.working, s.last = s.working || decision.Later, decision
			return nil, false, nil
		}
		if in.State == lifecycle.Uninitialized {
			if !swept {
				s.starts.keep(s.roster.Instances())
				swept = true
			}
			if s.starts.begun(in).outcome() != nil {
				s.giveBack(in)
				s.wake(list, in, out)
				continue
			}
		}
		s.working = true
		ended := s.broken.begin(in)
		if ended == nil { // another step is the one that shows whether it works again
			s.giveBack(in)
			out.add(runOf(in), leftAlone(errOnTrial), errOnTrial)
			continue
		}
		result, taken, err := s.hand(ctx, in, decision, ended)
		if taken || ctx.Err() != nil {
			return result, taken, err
		}
		s.refusal = err
		if refused(err) {
			s.deaf.note(in, retryPause, err) // by other steps too: each would be refused
		}
		out.add(runOf(in), passedOver(err), err)
	}
}

// hand gives the step to an instance, and the place there back, even when a handler panics:
// whoever contains that has the dispatcher go on.
func (s *search) hand(ctx context.Context, in registry.Instance, why selection.Decision, ended func(breaker.Result, error)) (result *troupev1.StepResult, taken bool, err error) {
	defer func() {
		ended(judge(ctx, result, taken, err))
		if s.works {
			s.slots.works(in, -1)
		}
		if taken {
			s.deaf.forget(in)
		}
		if taken || s.works {
			s.slots.give(in, true)
		} else {
			s.giveBack(in)
		}
	}()
	if s.handler.Equip != nil {
		if s.req.Tools, err = s.handler.Equip(in); err != nil {
			return nil, true, err
		}
	}
	return s.try(ctx, in, s.req, s.told(why))
}

// leftAlone is why an instance is not asked that failed its last steps. One that is on trial
// may have the step soon, as one may that refused it.
func leftAlone(err error) selection.Availability {
	if errors.Is(err, errOnTrial) {
		return selection.Refused
	}
	return selection.BreakerOpen
}

// passedOver is why an instance is not asked that did not take a step.
func passedOver(err error) selection.Availability {
	if refused(err) {
		return selection.Refused
	}
	return selection.Unresponsive
}

// giveBack returns a place that could not be used, and goes back to that in the line.
func (s *search) giveBack(in registry.Instance) {
	s.slots.give(in, false)
	s.slots.join(in.Agent, s.waiter)
}

// rest waits until there may be a place, or the patience ends.
func (s *search) rest(ctx context.Context, changed <-chan struct{}) error {
	again := time.NewTicker(retryPause)
	defer again.Stop()
	for {
		select {
		case <-s.waiter.again:
			return nil
		case <-changed:
			return nil
		case <-again.C:
			if s.slots.asks(s.req.GetAgent(), s.waiter) {
				return nil
			}
		case <-s.patience.C:
			if s.over = s.impatient(); s.over {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// impatient reports whether a wait that has lasted long enough is in vain. It is not while an
// instance works on a step of this orchestrator, and will take this one: how long that takes
// is the agent's business, and the turn has a timeout.
func (s *search) impatient() bool {
	list, _ := s.roster.List(s.req.GetAgent())
	out := s.excluded()
	only := ""
	if s.policy.Strategy == selection.Manual && s.policy.Fallback == "" {
		only = s.policy.Instance
	}
	if s.slots.working(s.req.GetAgent(), list, func(c selection.Candidate) bool {
		no, ok := out[c.ID]
		ok = ok && no.Incarnation == c.Incarnation && no.Why != selection.Refused
		return !ok && (only == "" || c.ID == only)
	}) {
		s.patience.Reset(s.wait)
		return false
	}
	return true
}

// excluded are instances that shall not have the step, by id.
type excluded map[string]selection.Rejected

// maxDetail is how much of why an instance did not take a step is recorded, in characters.
const maxDetail = 200

func (e excluded) add(who run, why selection.Availability, err error) {
	e[who.ID] = selection.Rejected{ID: who.ID, Incarnation: who.incarnation, Why: why, Detail: conversation.Brief(failure.Plain(err), maxDetail)}
}

// excluded are those that need not be asked: they lost the step, or others, or do not answer.
func (s *search) excluded() excluded {
	out := excluded{}
	for who, err := range s.broken.of(s.req.GetAgent()) {
		s.refusal = err
		out.add(who, leftAlone(err), err)
	}
	for who, err := range s.deaf.of(s.req.GetAgent()) {
		s.refusal = err
		out.add(who, passedOver(err), err)
	}
	for _, in := range s.avoid {
		out[in.ID] = selection.Rejected{ID: in.ID, Incarnation: in.Incarnation, Why: selection.Lost}
	}
	return out
}

// told returns a handler that is told of the decision before it is told of the start.
func (s *search) told(why selection.Decision) Handler {
	h := s.handler
	h.Started = func(in registry.Instance) error {
		s.slots.works(in, 1)
		s.works = true
		if h.Chosen != nil {
			if err := h.Chosen(why); err != nil {
				return err
			}
		}
		return s.handler.Started(in)
	}
	return h
}

// wake begins the start of all instances that were not started, for nobody else has a place.
// When one is named, the others may sleep. Those that are not up are excluded.
func (s *search) wake(list *instances.List, named registry.Instance, out excluded) {
	for _, in := range list.Instances {
		if in.State != lifecycle.Uninitialized || s.policy.Strategy == selection.Manual && in.ID != named.ID {
			continue
		}
		if err := s.starts.begun(in).outcome(); err != nil {
			s.refusal = err
			out.add(runOf(in), selection.Starting, err)
		}
	}
}

// interrupted reports whether the search shall begin anew, or end.
func (s *search) interrupted() bool {
	select {
	case <-s.patience.C:
		s.over = s.impatient()
		return s.over
	case <-s.waiter.again:
		s.working = true
		s.waiter.wake() // so that it does not rest
		return true
	default:
		return false
	}
}

// nobody says why no instance took the step.
func (s *search) nobody() error {
	why := "none is ready"
	switch {
	case (s.policy.Strategy == selection.Manual || s.policy.Strategy == selection.Capability) && s.last.Reason != "":
		why = s.last.Reason
	case s.refusal != nil && (!s.working || failure.Is(s.refusal, failure.PolicySecurity)):
		why += ": " + failure.Plain(s.refusal)
	case s.working:
		why = "all are at capacity, refuse it, fail their steps, or cannot be reached"
	case len(s.avoid) > 0:
		why = "none is ready but those that lost it before"
	}
	return failure.Newf(failure.NoWorker, "dispatch", "no instance of agent %s took the step within %s: %s", s.req.GetAgent(), s.wait, why).
		With("agent", s.req.GetAgent()).Because(s.refusal)
}
