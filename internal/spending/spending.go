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
	budget        *troupev1.TurnBudget // from the plan event
	finalUsed     *budget.Amounts      // from the turn result (nil while the trace runs)
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
func (s *Tally) AddEvent(e *troupev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_Plan:
		s.budget = p.Plan.GetBudget()
	case *troupev1.Event_SubtaskStarted:
		a := s.attemptFor(e)
		if a.isRemote(e.GetBranch()) {
			return // the subtask may belong to the remote turn, whose work the result contains
		}
		a.used.FanOut++
		if p.SubtaskStarted.GetCallId() == "" {
			a.remoteBranches = append(a.remoteBranches, e.GetBranch())
		}
	case *troupev1.Event_ModelCall:
		if a := s.attemptFor(e); !a.isRemote(e.GetBranch()) {
			a.used = a.used.Add(amountsFromModelCall(p.ModelCall))
		}
	case *troupev1.Event_ToolCallStarted:
		if a := s.attemptFor(e); !a.isRemote(e.GetBranch()) {
			a.used.ToolCalls++
		}
	case *troupev1.Event_TextRetracted:
		if used := p.TextRetracted.GetUsed(); used != nil {
			s.attemptFor(e).used = wire.UsedFromProto(used)
		}
	case *troupev1.Event_StepFinished:
		s.setResult(e, p.StepFinished.GetResult())
	case *troupev1.Event_Warning:
		if IsBudgetWarning(e) {
			s.markWarned(WarningKind(p.Warning))
		}
	case *troupev1.Event_TurnResult:
		s.finalUsed = nil
		if used := p.TurnResult.GetUsed(); used != nil {
			total := wire.UsedFromProto(used)
			s.finalUsed = &total
		}
	}
}

// setResult replaces the amounts of an attempt by the amounts in its result.
func (s *Tally) setResult(e *troupev1.Event, r *troupev1.StepResult) {
	if s.finishedSteps == nil {
		s.finishedSteps = map[int32]bool{}
	}
	s.finishedSteps[e.GetStep()] = true
	a := s.attemptFor(e)
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

func (s *Tally) attemptFor(e *troupev1.Event) *attempt {
	key := attemptKey{e.GetStep(), e.GetAttempt()}
	if s.attempts == nil {
		s.attempts = map[attemptKey]*attempt{}
	}
	if s.attempts[key] == nil {
		s.attempts[key] = &attempt{}
	}
	return s.attempts[key]
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
func (s *Tally) Budget() *troupev1.TurnBudget {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.budget
}

// FinishedSteps returns the number of finished steps.
func (s *Tally) FinishedSteps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.finishedSteps)
}

// Used returns the amounts that the trace used, including the turns that it continues.
func (s *Tally) Used() budget.Amounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finalUsed != nil {
		return *s.finalUsed
	}
	return s.sumAttempts(func(int32) bool { return true }).Add(wire.UsedFromProto(s.budget.GetCarried()))
}

// UsedByStep returns the amounts that all attempts of a step used together.
func (s *Tally) UsedByStep(step int) budget.Amounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sumAttempts(func(n int32) bool { return n == int32(step) })
}

// sumAttempts adds up the attempts of the included steps. All attempts of a step share its remote turns, so those
// count only once. The caller holds the lock.
func (s *Tally) sumAttempts(include func(step int32) bool) budget.Amounts {
	var sum budget.Amounts
	turns := map[int32]int64{}
	for at, a := range s.attempts {
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
