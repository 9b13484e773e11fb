package assignment

import (
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// Share is the part of the budget that a step may use, in all its attempts from now on.
type Share struct {
	amounts    budget.Amounts
	usedBefore budget.Amounts // by the step when it got the share
}

// DivideBudget divides what is left of the budget among steps that are about to run side by side, and reserves
// it until they have ended: together they cannot use more. Where the budget only warns, each step gets all that
// is left. Child turns that a step has already begun do not count against it again.
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

// attemptBudget returns what an attempt may use: the share of its step, less the usage of its earlier attempts.
func (t *Turn) attemptBudget(a Attempt) *troupev1.Budget {
	left := a.Share.amounts.Subtract(t.Events.StepUsage(a.Position.Number).Subtract(a.Share.usedBefore))
	left.FanOut = a.Share.amounts.FanOut
	limits := budget.Limits{Amounts: left, Depth: t.Events.Allowance().Limits.Depth, Policy: t.Events.Allowance().Limits.Policy}
	return request.Allowance{Limits: limits, Depth: t.Events.Allowance().Depth}.Proto()
}
