// Package spending computes how much of its budget a trace has used, from the events of the trace.
package spending

import (
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Tally adds up how much of its budget a trace has used. It depends only on events, so an orchestrator that takes
// the trace over gets the same numbers. A finished attempt counts by its result, and a running one by its events.
// Work that an attempt takes from a journal has no events, so it is counted only once. The zero Tally is ready for
// use. It is safe for concurrent use.
type Tally struct {
	mu            sync.Mutex
	budget        *troupev1.TurnBudget // budget in the plan event
	finalUsed     *budget.Amounts      // amounts in the turn result (nil while the trace runs)
	attempts      map[attemptKey]*attempt
	finishedSteps map[int32]bool // finished steps
	warnedKinds   map[string]bool
}

// attemptKey identifies an attempt of a step.
type attemptKey struct{ step, attempt int32 }

// attempt holds what the events report about one attempt.
type attempt struct {
	used           budget.Amounts
	remoteBranches []string // branches of remote agents; the result contains their work
}

// AddEvent adds an event of the trace.
func (t *Tally) AddEvent(e *troupev1.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_Plan:
		t.budget = p.Plan.GetBudget()
	case *troupev1.Event_SubtaskStarted:
		a := t.attemptFor(e)
		if a.isRemote(e.GetBranch()) {
			return // the subtask may belong to the remote turn, whose work the result contains
		}
		a.used.FanOut++
		if p.SubtaskStarted.GetCallId() == "" {
			a.remoteBranches = append(a.remoteBranches, e.GetBranch())
		}
	case *troupev1.Event_ModelCall:
		if a := t.attemptFor(e); !a.isRemote(e.GetBranch()) {
			a.used = a.used.Add(amountsFromModelCall(p.ModelCall))
		}
	case *troupev1.Event_ToolCallStarted:
		if a := t.attemptFor(e); !a.isRemote(e.GetBranch()) {
			a.used.ToolCalls++
		}
	case *troupev1.Event_TextRetracted:
		if used := p.TextRetracted.GetUsed(); used != nil {
			t.attemptFor(e).used = wire.UsedFromProto(used)
		}
	case *troupev1.Event_StepFinished:
		t.setResult(e, p.StepFinished.GetResult())
	case *troupev1.Event_Warning:
		if IsBudgetWarning(e) {
			t.markWarned(WarningKind(p.Warning))
		}
	case *troupev1.Event_TurnResult:
		t.finalUsed = nil
		if used := p.TurnResult.GetUsed(); used != nil {
			total := wire.UsedFromProto(used)
			t.finalUsed = &total
		}
	}
}

// setResult replaces the amounts of an attempt by the amounts in its result.
func (t *Tally) setResult(e *troupev1.Event, r *troupev1.StepResult) {
	if t.finishedSteps == nil {
		t.finishedSteps = map[int32]bool{}
	}
	t.finishedSteps[e.GetStep()] = true
	a := t.attemptFor(e)
	if r.GetUsed() != nil {
		a.used = wire.UsedFromProto(r.GetUsed())
		return
	}
	u := r.GetUsage()
	a.used = a.used.Max(budget.Amounts{
		Iterations: int64(r.GetIterations()), ModelCalls: int64(u.GetModelCalls()), ToolCalls: int64(len(r.GetToolsCalled())),
		Tokens: u.GetInputTokens() + u.GetOutputTokens(), Cost: u.GetCostMicroUsd(),
	})
}

func amountsFromModelCall(m *troupev1.ModelCall) budget.Amounts {
	u := m.GetUsage()
	used := budget.Amounts{ModelCalls: 1, Tokens: u.GetInputTokens() + u.GetOutputTokens(), Cost: u.GetCostMicroUsd()}
	if m.GetIteration() > 0 {
		used.Iterations = 1
	}
	return used.Max(budget.Amounts{}) // a faulty worker may send negative amounts
}

func (t *Tally) attemptFor(e *troupev1.Event) *attempt {
	key := attemptKey{e.GetStep(), e.GetAttempt()}
	if t.attempts == nil {
		t.attempts = map[attemptKey]*attempt{}
	}
	if t.attempts[key] == nil {
		t.attempts[key] = &attempt{}
	}
	return t.attempts[key]
}

// isRemote reports whether the branch belongs to a remote agent or to one of its descendants.
func (a *attempt) isRemote(branch string) bool {
	for _, remote := range a.remoteBranches {
		if remote == "" || branch == remote || strings.HasPrefix(branch, remote+".") {
			return true
		}
	}
	return false
}

// Budget returns the budget in the plan of the trace (nil if the plan has none).
func (t *Tally) Budget() *troupev1.TurnBudget {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.budget
}

// FinishedSteps returns the number of finished steps.
func (t *Tally) FinishedSteps() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.finishedSteps)
}

// Used returns the amounts that the trace used, including the turns that it continues.
func (t *Tally) Used() budget.Amounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finalUsed != nil {
		return *t.finalUsed
	}
	return t.sumAttempts(func(int32) bool { return true }).Add(wire.UsedFromProto(t.budget.GetCarried()))
}

// UsedByStep returns the amounts that all attempts of a step used together.
func (t *Tally) UsedByStep(step int) budget.Amounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sumAttempts(func(n int32) bool { return n == int32(step) })
}

// sumAttempts adds up the attempts of the included steps. All attempts of a step share its remote turns, so those
// count only once. The caller holds the lock.
func (t *Tally) sumAttempts(include func(step int32) bool) budget.Amounts {
	var sum budget.Amounts
	turns := map[int32]int64{}
	for at, a := range t.attempts {
		if !include(at.step) {
			continue
		}
		used := a.used
		turns[at.step], used.FanOut = max(turns[at.step], used.FanOut), 0
		sum = sum.Add(used)
	}
	for _, n := range turns {
		sum.FanOut += n
	}
	return sum
}
