package interact

import (
	"math"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// budgetFlags holds the flags with which a caller lowers the budget of a turn.
type budgetFlags struct {
	Budget []string `help:"Lower a limit: iterations, modelCalls, toolCalls, tokens, cost (US dollars), fanOut, depth." placeholder:"KIND=NUMBER" sep:"none"`
}

// The largest amounts that a flag accepts. No workflow allows more than these.
const (
	maxAmount = 1_000_000_000
	maxCost   = 1_000_000 // US dollars
)

// limits returns the limits of the turn (nil selects the workflow's limits).
func (b budgetFlags) limits() (*troupev1.Budget, error) {
	if len(b.Budget) == 0 {
		return nil, nil
	}
	limits, depth := budget.Unbounded(), int64(budget.Unlimited)
	given := map[budget.Kind]*int64{
		budget.Iterations: &limits.Iterations, budget.ModelCalls: &limits.ModelCalls, budget.ToolCalls: &limits.ToolCalls,
		budget.Tokens: &limits.Tokens, budget.Cost: &limits.Cost, budget.FanOut: &limits.FanOut, budget.Depth: &depth,
	}
	for _, flag := range b.Budget {
		name, text, _ := strings.Cut(flag, "=")
		kind := budget.Kind(name)
		to, known := given[kind]
		switch {
		case !known:
			return nil, invalidBudget("want KIND=NUMBER, such as tokens=20000, and not %q; the kinds are %s", flag, budgetKindNames())
		case *to != budget.Unlimited:
			return nil, invalidBudget("%s is given twice; leave one of them out", kind)
		}
		var ok bool
		if *to, ok = parseAmount(kind, text); !ok && kind == budget.Cost {
			return nil, invalidBudget("cost: %q is not a number of US dollars from 0.000001 to %d, such as 0.05", text, maxCost)
		} else if !ok {
			return nil, invalidBudget("%s: %q is not a whole number from 1 to %d", kind, text, maxAmount)
		}
	}
	limits.Depth = int(depth)
	return wire.LimitsToProto(limits), nil
}

// parseAmount parses an amount in the unit of its budget kind. It returns false if the amount is invalid.
func parseAmount(kind budget.Kind, text string) (_ int64, ok bool) {
	if kind == budget.Cost {
		dollars, err := strconv.ParseFloat(text, 64)
		return int64(math.Round(dollars * budget.Dollar)), err == nil && dollars >= 1.0/budget.Dollar && dollars <= maxCost
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 1 && n <= maxAmount
}

// budgetKindNames returns the names of all kinds of budget limits, for messages.
func budgetKindNames() string {
	var names []string
	for _, k := range render.BudgetKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// budgetFlagsToRepeat returns the flags that set the same budget again. A repeated request needs them, because the
// request id does not identify the budget.
func budgetFlagsToRepeat(b *troupev1.Budget) (flags string) {
	for _, limit := range render.BudgetLimits(b) {
		flags += " --budget " + console.QuoteForShell(strings.Replace(limit, " ", "=", 1))
	}
	return flags
}

func invalidBudget(format string, args ...any) error {
	return failure.Newf(failure.UserInvalidInput, "troupe", "--budget: "+format, args...)
}
