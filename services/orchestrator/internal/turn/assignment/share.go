package assignment

import (
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// Share is the part of the budget that a step may use in all attempts from now on.
type Share struct {
	amounts    budget.Amounts
	usedBefore budget.Amounts // usage of the step at the time when it got the share
}

// DivideBudget divides the remaining budget among steps that are about to run concurrently, and reserves the
// shares until these steps have ended. Together they cannot use more than the remaining budget. If the budget only
// warns, each step gets the whole rest. Child turns that a step has already begun are not counted again.
func (t *Turn) DivideBudget(steps []int) []Share {
	shares := make([]Share, len(steps))
	used := t.Events.Usage()
	for i, step := range steps {
		shares[i].usedBefore = t.Events.StepUsage(step)
		used.FanOut -= shares[i].usedBefore.FanOut
	}
	left := t.Events.Allowance().Limits.Subtract(used)
	for i, part := range left.Divide(len(steps)) {
		shares[i].amounts = part
		if t.Events.Allowance().Limits.Policy == budget.Warn {
			shares[i].amounts = left
			shares[i].amounts.FanOut = part.FanOut
		}
	}
	return shares
}

// attemptBudget returns the budget of an attempt: the share of its step minus the usage of earlier attempts.
func (t *Turn) attemptBudget(a Attempt) *troupev1.Budget {
	left := a.Share.amounts.Subtract(t.Events.StepUsage(a.Origin.Number).Subtract(a.Share.usedBefore))
	left.FanOut = a.Share.amounts.FanOut
	limits := budget.Limits{Amounts: left, Depth: t.Events.Allowance().Limits.Depth, Policy: t.Events.Allowance().Limits.Policy}
	return request.Allowance{Limits: limits, Depth: t.Events.Allowance().Depth}.Proto()
}
