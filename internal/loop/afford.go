package loop

import (
	"fmt"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// ReasonBudgetExceeded is that of the warning that more is used than a budget allows whose policy
// is to warn.
const ReasonBudgetExceeded = "BUDGET_EXCEEDED"

// afford asks the budget for what is about to be used.
func (r *run) afford(asked budget.Amounts) (budget.Reservation, error) {
	held, err := r.in.Budget.Reserve(asked)
	if err != nil {
		return held, err
	}
	for _, k := range held.Beyond {
		told := event.Warning{Reason: ReasonBudgetExceeded, Message: fmt.Sprintf(
			"limits.%s: more is used than the budget allows; its policy is to warn, so the step goes on", k)}
		if err := r.Events.Emit(told); err != nil {
			held.Settle(budget.Amounts{})
			return held, err
		}
	}
	return held, nil
}

// affordTools asks for all calls of a round that are about to run, before any of them does or is
// noted in the journal: one that is refused leaves none half done. A call that a handler or an
// attempt before has answered costs nothing. What is granted is used: a tool may have an effect
// also when it fails.
func (r *run) affordTools(calls ...*work) error {
	if r.in.Budget == nil {
		return nil
	}
	asked := budget.Amounts{}
	for _, w := range calls {
		if w != nil && r.fresh(w) {
			asked.ToolCalls++
		}
	}
	if asked.ToolCalls == 0 {
		return nil
	}
	held, err := r.afford(asked)
	if err == nil {
		held.Settle(asked)
	}
	return err
}

// fresh reports whether a call is about to run.
func (r *run) fresh(w *work) bool {
	if w.done || w.waits() || r.inDoubt(w) {
		return false
	}
	_, known := r.replay(w.entry.Number, execution.Done)
	return !known
}

// affordModel asks for a model call.
func (r *run) affordModel(req llm.Request, aside bool) (budget.Reservation, error) {
	if r.in.Budget == nil {
		return budget.Reservation{}, nil
	}
	return r.afford(modelCall(req, aside))
}

// modelCall is what is reserved for one: of tokens what it is about to read, as it is estimated,
// and the first that it says. How much it will say, and what that costs, is known behind it.
func modelCall(req llm.Request, aside bool) budget.Amounts {
	tokens := 1 + conversation.Tokens(conversation.Message{Text: req.System})
	for _, m := range req.Messages {
		tokens += conversation.Tokens(m)
	}
	for _, t := range req.Tools {
		tokens += conversation.Tokens(conversation.Message{Text: t.Description}) + int64(len(t.Schema))/4
	}
	return budget.Amounts{Iterations: counted(aside), ModelCalls: 1, Tokens: tokens, Cost: 1}
}

// consumed is what a model call used, also when it failed.
func consumed(u execution.Usage, aside bool) budget.Amounts {
	return budget.Amounts{
		Iterations: counted(aside), ModelCalls: 1, Tokens: u.InputTokens + u.OutputTokens, Cost: u.CostMicros,
	}
}

// counted is 1 for a call of the conversation.
func counted(aside bool) int64 {
	if aside {
		return 0
	}
	return 1
}
