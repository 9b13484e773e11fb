package wire

import (
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Spending is what the events of a trace say that was used of its budget. It is a function of the
// events alone: whoever takes the trace over comes to the same. An attempt counts by its result
// once it has one, and before by what it told; what it took from a journal is not told, and
// counts once. The zero Spending is ready. Safe for concurrent use.
type Spending struct {
	mu       sync.Mutex
	budget   *troupev1.TurnBudget // of the plan
	total    *budget.Amounts      // as the end of the trace has it
	attempts map[place]*attempt
	steps    map[int32]bool // that have ended
	warned   map[string]bool
}

// place is an attempt of a step.
type place struct{ step, attempt int32 }

// attempt is what is known of one.
type attempt struct {
	used   budget.Amounts
	remote []string // branches of agents that are remote: what they do is counted with the result
}

// Note takes an event of the trace into account.
func (s *Spending) Note(e *troupev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_Plan:
		s.budget = p.Plan.GetBudget()
	case *troupev1.Event_SubtaskStarted:
		a := s.at(e)
		if a.elsewhere(e.GetBranch()) {
			return // it may be one of the remote turn; the result knows
		}
		a.used.FanOut++
		if p.SubtaskStarted.GetCallId() == "" {
			a.remote = append(a.remote, e.GetBranch())
		}
	case *troupev1.Event_ModelCall:
		if a := s.at(e); !a.elsewhere(e.GetBranch()) {
			a.used = a.used.Add(modelCall(p.ModelCall))
		}
	case *troupev1.Event_ToolCallStarted:
		if a := s.at(e); !a.elsewhere(e.GetBranch()) {
			a.used.ToolCalls++
		}
	case *troupev1.Event_PartReset:
		if used := p.PartReset.GetUsed(); used != nil {
			s.at(e).used = UsedFromProto(used)
		}
	case *troupev1.Event_StepFinished:
		s.ended(e, p.StepFinished.GetResult())
	case *troupev1.Event_Warning:
		if isOwn(e, p.Warning) {
			s.warn(kindOf(p.Warning))
		}
	case *troupev1.Event_TurnResult:
		s.total = usedOrNil(p.TurnResult.GetUsed())
	}
}

// ended counts an attempt by its result.
func (s *Spending) ended(e *troupev1.Event, r *troupev1.StepResult) {
	if s.steps == nil {
		s.steps = map[int32]bool{}
	}
	s.steps[e.GetStep()] = true
	a := s.at(e)
	if r.GetUsed() != nil {
		a.used = UsedFromProto(r.GetUsed())
		return
	}
	u := r.GetUsage()
	a.used = a.used.Most(budget.Amounts{
		Iterations: int64(r.GetIterations()), ModelCalls: int64(u.GetModelCalls()), ToolCalls: int64(len(r.GetToolsCalled())),
		Tokens: u.GetInputTokens() + u.GetOutputTokens(), Cost: u.GetCostMicroUsd(),
	})
}

func modelCall(m *troupev1.ModelCall) budget.Amounts {
	u := m.GetUsage()
	used := budget.Amounts{ModelCalls: 1, Tokens: u.GetInputTokens() + u.GetOutputTokens(), Cost: u.GetCostMicroUsd()}
	if m.GetIteration() > 0 {
		used.Iterations = 1
	}
	return used.Most(budget.Amounts{}) // it may come from anybody's worker
}

func (s *Spending) at(e *troupev1.Event) *attempt {
	key := place{e.GetStep(), e.GetAttempt()}
	if s.attempts == nil {
		s.attempts = map[place]*attempt{}
	}
	if s.attempts[key] == nil {
		s.attempts[key] = &attempt{}
	}
	return s.attempts[key]
}

// elsewhere reports whether a branch is that of a remote agent, or below it.
func (a *attempt) elsewhere(branch string) bool {
	for _, remote := range a.remote {
		if remote == "" || branch == remote || strings.HasPrefix(branch, remote+".") {
			return true
		}
	}
	return false
}

// Budget is what the plan of the trace tells that it may use; nil when it does not.
func (s *Spending) Budget() *troupev1.TurnBudget {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.budget
}

// Steps is how many steps have ended.
func (s *Spending) Steps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steps)
}

// Used is what the trace used, with the turns that it goes on with.
func (s *Spending) Used() budget.Amounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total != nil {
		return *s.total
	}
	return s.sum(func(int32) bool { return true }).Add(UsedFromProto(s.budget.GetCarried()))
}

// UsedBy is what a step used in all its attempts.
func (s *Spending) UsedBy(step int) budget.Amounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum(func(n int32) bool { return n == int32(step) })
}

// sum is called with the lock held. The attempts of a step wait for the same remote turns.
func (s *Spending) sum(of func(step int32) bool) budget.Amounts {
	var sum budget.Amounts
	turns := map[int32]int64{}
	for at, a := range s.attempts {
		if !of(at.step) {
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
