package dispatch

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/breakers"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// exclusions holds the instances that must not get a step, by instance id, with the reason.
type exclusions map[string]selection.Rejected

// maxDetailChars limits the length of a recorded exclusion reason, in characters.
const maxDetailChars = 200

var errInTrial = failure.New(failure.ResourceCircuit, "dispatch", "it failed its last steps, and another step shows now whether it works again")

func (e exclusions) add(who instances.Incarnation, why selection.Availability, err error) {
	e[who.ID] = selection.Rejected{ID: who.ID, Incarnation: who.Number, Availability: why, Detail: conversation.Excerpt(failure.PlainMessage(err), maxDetailChars)}
}

// findExcluded returns the instances that must not get the step. Their breaker is open, they are in backoff, or
// they lost this step before.
func (s *search) findExcluded() exclusions {
	out := exclusions{}
	for who, failed := range s.breakers.Failures(s.req.GetAgent()) {
		err := failed.Err
		switch failed.Status {
		case breakers.Closed:
			continue
		case breakers.InTrial:
			err = errInTrial
		case breakers.Open:
		}
		s.lastErr = err
		out.add(who, breakerAvailability(failed.Status), err)
	}
	for who, err := range s.backoffs.Errors(s.req.GetAgent()) {
		s.lastErr = err
		out.add(who, backoffAvailability(err), err)
	}
	for _, in := range s.avoided {
		out[in.ID] = selection.Rejected{ID: in.ID, Incarnation: in.Incarnation, Availability: selection.Lost}
	}
	return out
}

// breakerAvailability returns why an instance with this breaker status is excluded. An instance on trial counts as
// rejecting the step, because it may accept it soon.
func breakerAvailability(s breakers.Status) selection.Availability {
	if s == breakers.InTrial {
		return selection.RejectedStep
	}
	return selection.BreakerOpen
}

// backoffAvailability returns why an instance that is in backoff because of err is excluded.
func backoffAvailability(err error) selection.Availability {
	if isRejection(err) {
		return selection.RejectedStep
	}
	return selection.Unresponsive
}

// isRejection reports whether err means that an instance did not begin the step.
func isRejection(err error) bool {
	return failure.Is(err, failure.InstanceFull, failure.InstancePaused, failure.InstanceDraining, failure.AgentState)
}
