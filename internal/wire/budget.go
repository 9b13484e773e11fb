package wire

import (
	"math"

	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var policies = convert.Enum[budget.Policy, troupev1.BudgetPolicy]{
	budget.Block: troupev1.BudgetPolicy_BUDGET_POLICY_BLOCK,
	budget.Warn:  troupev1.BudgetPolicy_BUDGET_POLICY_WARN,
}

// LimitsToProto is what may be used; what is not bounded is absent.
func LimitsToProto(l budget.Limits) *troupev1.Budget {
	bound := func(amount int64) *int64 {
		if amount == budget.Unlimited {
			return nil
		}
		return &amount
	}
	b := &troupev1.Budget{
		Iterations: bound(l.Iterations), ModelCalls: bound(l.ModelCalls), ToolCalls: bound(l.ToolCalls), Tokens: bound(l.Tokens),
		CostMicroUsd: bound(l.Cost), FanOut: bound(l.FanOut), Policy: policies.ToProto(l.Policy),
	}
	if l.Depth <= math.MaxInt32 {
		depth := int32(l.Depth)
		b.Depth = &depth
	}
	return b
}

// LimitsFromProto is the inverse of LimitsToProto; nil bounds nothing.
func LimitsFromProto(b *troupev1.Budget) budget.Limits {
	l := budget.Open()
	if b == nil {
		return l
	}
	bound := func(amount *int64) int64 {
		if amount == nil {
			return budget.Unlimited
		}
		return *amount
	}
	l.Amounts = budget.Amounts{
		Iterations: bound(b.Iterations), ModelCalls: bound(b.ModelCalls), ToolCalls: bound(b.ToolCalls), Tokens: bound(b.Tokens),
		Cost: bound(b.CostMicroUsd), FanOut: bound(b.FanOut),
	}
	if b.Depth != nil {
		l.Depth = int(b.GetDepth())
	}
	l.Policy = policies.FromProto(b.GetPolicy())
	return l
}

// LedgerFromProto is what one who works for a trace may use; nil is nothing that bounds.
func LedgerFromProto(b *troupev1.Budget) *budget.Ledger {
	if b == nil {
		return nil
	}
	return budget.New(LimitsFromProto(b), int(b.GetLevel()))
}

// UsedToProto is what was used, also when it is nothing.
func UsedToProto(a budget.Amounts) *troupev1.BudgetUse {
	return &troupev1.BudgetUse{
		Iterations: amount(a.Iterations), ModelCalls: amount(a.ModelCalls), ToolCalls: amount(a.ToolCalls), Tokens: amount(a.Tokens),
		CostMicroUsd: amount(a.Cost), FanOut: amount(a.FanOut),
	}
}

// UsedFromProto is the inverse of UsedToProto. What is below 0 is taken as nothing: it may come
// from anybody's worker.
func UsedFromProto(u *troupev1.BudgetUse) budget.Amounts {
	return budget.Amounts{
		Iterations: u.GetIterations(), ModelCalls: u.GetModelCalls(), ToolCalls: u.GetToolCalls(),
		Tokens: u.GetTokens(), Cost: u.GetCostMicroUsd(), FanOut: u.GetFanOut(),
	}.Most(budget.Amounts{})
}

// usedOrNil is what a result says of it.
func usedOrNil(u *troupev1.BudgetUse) *budget.Amounts {
	if u == nil {
		return nil
	}
	used := UsedFromProto(u)
	return &used
}
