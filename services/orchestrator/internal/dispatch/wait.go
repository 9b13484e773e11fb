package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// retryPause is how long steps skip an instance that rejected a step.
const retryPause = 100 * time.Millisecond

// awaitInstance waits until an instance may accept the step, or until the step has expired.
func (s *search) awaitInstance(ctx context.Context, changed <-chan struct{}) (roundEnd, error) {
	retry := time.NewTicker(retryPause)
	defer retry.Stop()
	for {
		select {
		case <-s.waiter.WakeChan():
			return interrupted, nil
		case <-changed:
			return interrupted, nil
		case <-retry.C:
			if s.queue.ShouldPoll(s.req.GetAgent(), s.waiter) {
				return interrupted, nil
			}
		case <-s.timeoutTimer.C:
			if s.isExpired() {
				return expired, nil
			}
		case <-ctx.Done():
			return exhausted, ctx.Err()
		}
	}
}

// checkInterrupt returns without waiting whether a round ends early. It returns exhausted if the round should
// continue.
func (s *search) checkInterrupt() roundEnd {
	select {
	case <-s.timeoutTimer.C:
		if s.isExpired() {
			return expired
		}
		return exhausted
	case <-s.waiter.WakeChan():
		s.waiter.Wake() // keeps the wake-up for awaitInstance
		return interrupted
	default:
		return exhausted
	}
}

// isExpired reports whether a step whose timeout has passed should give up. The step keeps waiting while an
// instance runs a step of this orchestrator and may take this one next, or is paused. The agent, or who has paused
// it, determines how long that takes, and the timeout of the turn bounds it. If the instances have changed since the
// last round, one more round comes first.
func (s *search) isExpired() bool {
	list, _ := s.instances.List(s.req.GetAgent())
	if list != s.list {
		s.timeoutTimer.Reset(0) // after a round with the new list
		return false
	}
	out := s.findExcluded()
	only := s.onlyInstance()
	if s.hasPausedInstance(list) || s.queue.HasRunningStep(s.req.GetAgent(), list, func(c selection.Candidate) bool {
		no, isOut := out[c.ID]
		isOut = isOut && no.Incarnation == c.Incarnation && no.Availability != selection.RejectedStep
		return !isOut && (only == "" || c.ID == only)
	}) {
		s.timeoutTimer.Reset(s.instanceTimeout)
		return false
	}
	return true
}

// hasPausedInstance reports whether an instance that may take the step is paused.
func (s *search) hasPausedInstance(list *instances.List) bool {
	only := s.onlyInstance()
	return slices.ContainsFunc(list.Withheld, func(w selection.Rejected) bool {
		return w.Availability == selection.Paused && (only == "" || w.ID == only)
	})
}

// onlyInstance returns the id of the only instance that may take the step (empty if any may).
func (s *search) onlyInstance() string {
	if s.instancePolicy.Strategy == selection.Manual && s.instancePolicy.Fallback == "" {
		return s.instancePolicy.Instance
	}
	return ""
}
