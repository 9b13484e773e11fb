package wire

import (
	"math"

	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var budgetPolicies = convert.Enum[budget.Policy, troupev1.BudgetPolicy]{
	budget.Block: troupev1.BudgetPolicy_BUDGET_POLICY_BLOCK,
	budget.Warn:  troupev1.BudgetPolicy_BUDGET_POLICY_WARN,
}

// LimitsToProto converts limits. A limit that is not set stays unset.
func LimitsToProto(l budget.Limits) *troupev1.Budget {
	bound := func(amount int64) *int64 {
		if amount == budget.Unlimited {
			return nil
		}
		return &amount
	}
	b := &troupev1.Budget{
		Iterations: bound(l.Iterations), ModelCalls: bound(l.ModelCalls), ToolCalls: bound(l.ToolCalls), Tokens: bound(l.Tokens),
		CostMicroUsd: bound(l.Cost), FanOut: bound(l.FanOut), Policy: budgetPolicies.ToProto(l.Policy),
	}
	if l.Depth <= math.MaxInt32 {
		depth := int32(l.Depth)
		b.Depth = &depth
	}
	return b
}

// LimitsFromProto is the inverse of LimitsToProto. Nil means no limits.
func LimitsFromProto(b *troupev1.Budget) budget.Limits {
	l := budget.Unbounded()
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
	l.Policy = budgetPolicies.FromProto(b.GetPolicy())
	return l
}

// LedgerFromProto returns a ledger with the limits of a budget (nil if there is no budget). A worker uses it to
// enforce the budget.
func LedgerFromProto(b *troupev1.Budget) *budget.Ledger {
	if b == nil {
		return nil
	}
	return budget.New(LimitsFromProto(b), int(b.GetLevel()))
}

// UsedToProto converts used amounts. The result is not nil even if all amounts are zero.
func UsedToProto(a budget.Amounts) *troupev1.BudgetUse {
	return &troupev1.BudgetUse{
		Iterations: clampAmount(a.Iterations), ModelCalls: clampAmount(a.ModelCalls), ToolCalls: clampAmount(a.ToolCalls), Tokens: clampAmount(a.Tokens),
		CostMicroUsd: clampAmount(a.Cost), FanOut: clampAmount(a.FanOut),
	}
}

// UsedFromProto is the inverse of UsedToProto. It treats negative amounts as zero, because any worker may have
// sent them.
func UsedFromProto(u *troupev1.BudgetUse) budget.Amounts {
	return budget.Amounts{
		Iterations: u.GetIterations(), ModelCalls: u.GetModelCalls(), ToolCalls: u.GetToolCalls(),
		Tokens: u.GetTokens(), Cost: u.GetCostMicroUsd(), FanOut: u.GetFanOut(),
	}.Max(budget.Amounts{})
}

// usedFromProtoOrNil converts used amounts (nil if the message is missing).
func usedFromProtoOrNil(u *troupev1.BudgetUse) *budget.Amounts {
	if u == nil {
		return nil
	}
	used := UsedFromProto(u)
	return &used
}
