// Package budgetcheck reserves a part of a turn's budget before a run uses it.
package budgetcheck

import (
	"fmt"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/event"
)

// ReasonBudgetExceeded is the warning reason sent when usage exceeds a budget whose policy is to warn.
const ReasonBudgetExceeded = "BUDGET_EXCEEDED"

// Reserve reserves the amounts that a call is about to use. The caller settles the reservation with the real
// amounts. Reserve fails with policy_budget if the budget is exceeded. It also fails if a warning cannot be
// emitted.
func Reserve(ledger *budget.Ledger, events *turnstate.Events, amounts budget.Amounts) (budget.Reservation, error) {
	reserved, err := ledger.Reserve(amounts)
	if err != nil {
		return reserved, err
	}
	for _, k := range reserved.Exceeded {
		warning := event.Warning{Reason: ReasonBudgetExceeded, Message: fmt.Sprintf(
			"limits.%s: more is used than the budget allows; its policy is to warn, so the step goes on", k)}
		if err := events.Emit(warning); err != nil {
			reserved.Settle(budget.Amounts{})
			return reserved, err
		}
	}
	return reserved, nil
}
