package turn

import (
	"context"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// allowance is what a turn may use, and with what it begins.
type allowance struct {
	Limits  budget.Limits  `json:"limits"`
	Level   int            `json:"level,omitempty"`  // how deep it lies below a turn that nobody's agent asked for
	Carried budget.Amounts `json:"carried,omitzero"` // used by the turns that it goes on with
}

// allowance is what the workflow allows, or less when the request says so. A turn that goes on
// with another has no more than that. A turn with a parent gets the lesser of what is asked for
// and allowed; of anybody else more than is allowed is an error. Modes: user_invalid_input,
// policy_budget when the turn would lie too deep.
func (r Request) allowance(a admission) (allowance, error) {
	allowed := allowance{Limits: a.flow.Budget, Level: int(r.Parent.GetDepth())}
	if before := a.labels.Budget; before != nil {
		allowed = *before
		allowed.Limits = a.flow.Budget.Lower(before.Limits)
	}
	if r.Budget != nil {
		if r.Parent == nil {
			if err := lowers(*r.Budget, allowed.Limits); err != nil {
				return allowance{}, err
			}
		}
		allowed.Limits = allowed.Limits.Lower(*r.Budget)
	}
	if allowed.Level > allowed.Limits.Depth {
		return allowance{}, budget.Refuse(budget.Depth, int64(allowed.Limits.Depth), int64(allowed.Level)-1, 1)
	}
	return allowed, nil
}

// lowers refuses a budget that does not lower what is allowed.
func lowers(asked, allowed budget.Limits) error {
	const op = "turn.Orchestrate"
	for _, k := range append(budget.Kinds(), budget.Depth) {
		switch amount := asked.Of(k); {
		case amount == budget.Unlimited:
		case amount < 1:
			return failure.Newf(failure.UserInvalidInput, op, "budget.%s: must be at least 1; leave it out for what the workflow allows", k)
		case amount > allowed.Of(k):
			return failure.Newf(failure.UserInvalidInput, op,
				"budget.%s: %s is more than the %s that the workflow allows; ask for less, or raise its limits.%s", k, k.Text(amount), k.Text(allowed.Of(k)), k)
		}
	}
	if asked.Policy == budget.Warn && allowed.Policy != budget.Warn {
		return failure.New(failure.UserInvalidInput, op, "budget.policy: the workflow blocks what goes beyond, and a call cannot weaken that; leave it out, or change its limits.policy")
	}
	return nil
}

// kept is what has to be stored of it; nil when it follows from the workflow.
func (a allowance) kept(of budget.Limits) *allowance {
	if a == (allowance{Limits: of}) {
		return nil
	}
	return &a
}

// allowed is what the labels say of the budget, or else what the workflow allows.
func (l Labels) allowed(of budget.Limits) allowance {
	if l.Budget != nil {
		return *l.Budget
	}
	return allowance{Limits: of}
}

// after are the labels of a turn that goes on with one that has ended: what that used counts.
func (l Labels) after(result *troupev1.TurnResult, of budget.Limits) Labels {
	if result.GetUsed() != nil {
		allowed := l.allowed(of)
		allowed.Carried = wire.UsedFromProto(result.GetUsed())
		l.Budget = &allowed
	}
	return l
}

// proto is what the plan tells of it.
func (a allowance) proto() *troupev1.Budget {
	b := wire.LimitsToProto(a.Limits)
	b.Level = int32(a.Level)
	return b
}

// learn finds in the events of the owners before what the turn may use, and has used.
func (t *turn) learn() {
	for _, e := range t.events.Items() {
		t.spent().Note(e)
	}
	if told := t.spent().Budget(); told.GetLimits() != nil {
		t.allowed = allowance{
			Limits: wire.LimitsFromProto(told.GetLimits()), Level: int(told.GetLimits().GetLevel()), Carried: wire.UsedFromProto(told.GetCarried()),
		}
	}
}

// spent is what the trace has used, as its events tell.
func (t *turn) spent() *spending.Tally { return &t.translation.Spending }

// allot parts what is left among the steps that are about to run side by side: it is reserved for
// them until they have ended, so that together they cannot use more. Where nothing is refused
// nothing is parted. Remote turns that a step has begun already are not new to it.
func (t *turn) allot(open []*attempt) {
	used := t.spent().Used()
	for _, a := range open {
		a.before = t.spent().UsedByStep(a.number)
		used.FanOut -= a.before.FanOut
	}
	left := t.allowed.Limits.Less(used)
	parts := left.Parts(len(open))
	for i, a := range open {
		a.part = parts[i]
		if t.allowed.Limits.Policy == budget.Warn {
			a.part = left
			a.part.FanOut = parts[i].FanOut
		}
	}
}

// allotment is what an attempt may use: the part of its step, but for what attempts before used of it.
func (t *turn) allotment(a *attempt) *troupev1.Budget {
	left := a.part.Less(t.spent().UsedByStep(a.number).Less(a.before))
	left.FanOut = a.part.FanOut
	return allowance{Limits: budget.Limits{Amounts: left, Depth: t.allowed.Limits.Depth, Policy: t.allowed.Limits.Policy}, Level: t.allowed.Level}.proto()
}

// warnBudget tells behind an event of each kind of which most is used, once in the life of the trace.
func (t *turn) warnBudget(ctx context.Context, e *troupev1.Event) {
	switch e.GetPayload().(type) {
	case *troupev1.Event_ModelCall, *troupev1.Event_ToolCallStarted, *troupev1.Event_SubtaskStarted, *troupev1.Event_StepFinished:
	default:
		return // nothing was used
	}
	for _, w := range t.spent().DueWarnings() {
		// Without it nothing else is wrong, and the log has it.
		_ = t.emit(ctx, troupev1.Stage_STAGE_EXECUTE, &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: w}})
	}
}

// watchTime warns once when most of the turn's time is gone, also when it was before this owner
// had the turn. It returns what ends that: nothing is told behind it.
func (t *turn) watchTime(work, ctx context.Context, timeout time.Duration) (stop func()) {
	work, cancel := context.WithCancel(work)
	var watching sync.WaitGroup
	watching.Go(func() {
		var broken error // it is a warning alone
		defer func() { t.Telemetry.Panics.Note(ctx, broken) }()
		defer panics.Recover("turn.watchTime", &broken)
		end, _ := work.Deadline()
		due := time.NewTimer(time.Until(end) - spending.TimeLeftAtWarning(timeout))
		defer due.Stop()
		select {
		case <-work.Done():
			return
		case <-due.C:
		}
		if w := t.spent().TimeWarning(timeout-time.Until(end), timeout); w != nil {
			// Without it nothing else is wrong, and the log has it.
			_ = t.emit(ctx, max(t.events.Stage(), troupev1.Stage_STAGE_ROUTE), &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: w}})
		}
	})
	return func() { cancel(); watching.Wait() }
}
