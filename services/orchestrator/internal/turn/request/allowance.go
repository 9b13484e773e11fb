package request

import (
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Allowance is the budget of a turn, and the usage that counted against it before the turn began.
type Allowance struct {
	Limits     budget.Limits  `json:"limits"`
	Depth      int            `json:"level,omitempty"`  // nesting depth (0 means a turn that no agent requested)
	UsedBefore budget.Amounts `json:"carried,omitzero"` // used by the turns that this one continues
}

// Allowance returns the allowance of the turn: the limits of its workflow, or lower ones if the request sets them.
// before holds the labels of the turn that this one continues; the new turn has no more than that turn. A turn
// with a parent gets the lower of the requested and the allowed budget. For any other caller, it is an error to
// request more. Modes: user_invalid_input, policy_budget when the turn would be nested too deeply.
func (r Request) Allowance(workflow budget.Limits, before Labels) (Allowance, error) {
	allowed := Allowance{Limits: workflow, Depth: int(r.Parent.GetDepth())}
	if before.Budget != nil {
		allowed = *before.Budget
		allowed.Limits = workflow.Lower(before.Budget.Limits)
	}
	if r.Budget != nil {
		if r.Parent == nil {
			if err := checkNotAbove(*r.Budget, allowed.Limits); err != nil {
				return Allowance{}, err
			}
		}
		allowed.Limits = allowed.Limits.Lower(*r.Budget)
	}
	if allowed.Depth > allowed.Limits.Depth {
		return Allowance{}, budget.NewExceededError(budget.Depth, int64(allowed.Limits.Depth), int64(allowed.Depth)-1, 1)
	}
	return allowed, nil
}

// checkNotAbove rejects a budget that exceeds the allowed one.
func checkNotAbove(asked, allowed budget.Limits) error {
	const op = "turn.Orchestrate"
	for _, k := range append(budget.Kinds(), budget.Depth) {
		switch amount := asked.Get(k); {
		case amount == budget.Unlimited:
		case amount < 1:
			return failure.Newf(failure.UserInvalidInput, op, "budget.%s: must be at least 1; leave it out for what the workflow allows", k)
		case amount > allowed.Get(k):
			return failure.Newf(failure.UserInvalidInput, op,
				"budget.%s: %s is more than the %s that the workflow allows; ask for less, or raise its limits.%s",
				k, k.FormatAmount(amount), k.FormatAmount(allowed.Get(k)), k)
		}
	}
	if asked.Policy == budget.Warn && allowed.Policy != budget.Warn {
		return failure.New(failure.UserInvalidInput, op,
			"budget.policy: the workflow blocks what goes beyond, and a call cannot weaken that; leave it out, or change its limits.policy")
	}
	return nil
}

// NilIfDefault returns nil if the allowance follows from the workflow, so that it need not be stored. Otherwise it
// returns the allowance.
func (a Allowance) NilIfDefault(workflow budget.Limits) *Allowance {
	if a == (Allowance{Limits: workflow}) {
		return nil
	}
	return &a
}

// AllowanceOrDefault returns the allowance in the labels, or else the workflow's.
func (l Labels) AllowanceOrDefault(workflow budget.Limits) Allowance {
	if l.Budget != nil {
		return *l.Budget
	}
	return Allowance{Limits: workflow}
}

// WithUsage returns the labels for a turn that continues an ended turn. The usage of the ended turn counts against
// the budget.
func (l Labels) WithUsage(result *troupev1.TurnResult, workflow budget.Limits) Labels {
	if result.GetUsed() != nil {
		allowed := l.AllowanceOrDefault(workflow)
		allowed.UsedBefore = wire.UsedFromProto(result.GetUsed())
		l.Budget = &allowed
	}
	return l
}

// Proto converts the allowance to its message, without UsedBefore.
func (a Allowance) Proto() *troupev1.Budget {
	b := wire.LimitsToProto(a.Limits)
	b.Level = int32(a.Depth)
	return b
}

// AllowanceFromPlan returns the allowance in the plan of a trace, and whether the plan has one.
func AllowanceFromPlan(p *troupev1.TurnBudget) (Allowance, bool) {
	if p.GetLimits() == nil {
		return Allowance{}, false
	}
	return Allowance{
		Limits: wire.LimitsFromProto(p.GetLimits()), Depth: int(p.GetLimits().GetLevel()), UsedBefore: wire.UsedFromProto(p.GetCarried()),
	}, true
}
