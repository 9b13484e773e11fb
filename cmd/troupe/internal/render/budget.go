package render

import (
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// BudgetKinds returns the kinds of limits that a request may lower.
func BudgetKinds() []budget.Kind { return append(budget.Kinds(), budget.Depth) }

// BudgetLimits returns each limit of a budget with its kind, such as "tokens 20000".
func BudgetLimits(b *troupev1.Budget) (all []string) {
	limits := wire.LimitsFromProto(b)
	for _, k := range BudgetKinds() {
		if n := limits.Get(k); n != budget.Unlimited {
			all = append(all, string(k)+" "+k.FormatAmount(n))
		}
	}
	return all
}
