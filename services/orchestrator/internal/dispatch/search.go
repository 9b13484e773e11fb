package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/lifecycle"
	"github.com/troupe-dev/troupe/pkg/registry"
)

// search looks for an instance that takes a step. One goroutine uses it.
type search struct {
	*Dispatcher
	req      *troupev1.ExecuteStepRequest
	avoid    []registry.Instance
	handler  Handler
	patience <-chan time.Time

	over    bool  // the patience has ended
	working bool  // somebody could take the step, if not now
	refusal error // the last that was heard
}

// ask goes through the candidates until one takes the step. It stops early when a place
// became free, which may be at one that it has passed, and when the patience ends; to ask
// one that does not answer takes time.
func (s *search) ask(ctx context.Context, candidates []registry.Instance, freed <-chan struct{}) (_ *troupev1.StepResult, taken bool, _ error) {
	s.working = false
	swept := false
	for i, in := range candidates {
		if slices.ContainsFunc(s.avoid, func(a registry.Instance) bool { return same(a, in) }) {
			continue
		}
		if i > 0 && s.interrupted(freed) {
			return nil, false, nil
		}
		if in.State == lifecycle.Uninitialized {
			if !swept {
				s.starts.keep(s.roster.Instances())
				swept = true
			}
			if err := s.starts.begun(in).outcome(); err != nil {
				s.refusal = err
				continue
			}
		}
		s.working = true
		if err := s.deaf.check(in); err != nil {
			s.refusal = err
			continue
		}
		if !s.slots.take(in) {
			continue
		}
		result, taken, err := s.try(ctx, in, s.req, s.handler)
		s.slots.give(in, taken)
		if taken || ctx.Err() != nil {
			return result, taken, err
		}
		s.refusal = err
	}
	return nil, false, nil
}

// same reports whether two registrations are of one run of an instance.
func same(a, b registry.Instance) bool { return a.Key() == b.Key() && a.Incarnation == b.Incarnation }

func (s *search) interrupted(freed <-chan struct{}) bool {
	select {
	case <-s.patience:
		s.over = true
		return true
	case <-freed:
		s.working = true
		return true
	default:
		return false
	}
}

// nobody says why no instance took the step.
func (s *search) nobody() error {
	why := "none is ready"
	switch {
	case !s.working && s.refusal != nil:
		why += ": " + failure.Plain(s.refusal)
	case s.working:
		why = "all are at capacity, refuse it, or cannot be reached"
	case len(s.avoid) > 0:
		why = "none is ready but those that lost it before"
	}
	return failure.Newf(failure.NoWorker, "dispatch", "no instance of agent %s took the step within %s: %s", s.req.GetAgent(), s.wait, why).
		With("agent", s.req.GetAgent()).Because(s.refusal)
}
