package step

import (
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// allot divides what is left of the budget among the steps that are about to run side by side, and
// reserves it until they have ended: together they cannot use more. Where the budget only warns, each
// step gets all that is left. Remote turns that a step has begun already do not count against it again.
func (t *Turn) allot(open []*attempt) {
	used := t.Events.Used()
	for _, a := range open {
		a.usedBefore = t.Events.UsedBy(a.at.Number)
		used.FanOut -= a.usedBefore.FanOut
	}
	limits := t.Events.Allowed().Limits
	left := limits.Less(used)
	shares := left.Parts(len(open))
	for i, a := range open {
		a.share = shares[i]
		if limits.Policy == budget.Warn {
			a.share = left
			a.share.FanOut = shares[i].FanOut
		}
	}
}

// allotment is what an attempt may use: the share of its step, less what earlier attempts used of it.
func (t *Turn) allotment(a *attempt) *troupev1.Budget {
	allowed := t.Events.Allowed()
	left := a.share.Less(t.Events.UsedBy(a.at.Number).Less(a.usedBefore))
	left.FanOut = a.share.FanOut
	limits := budget.Limits{Amounts: left, Depth: allowed.Limits.Depth, Policy: allowed.Limits.Policy}
	return request.Allowance{Limits: limits, Level: allowed.Level}.Proto()
}
