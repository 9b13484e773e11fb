package turn

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// reportUsage sends the usage of a step, and then its result.
func (s *scriptedStep) reportUsage(a budget.Amounts) error {
	return s.commit(func(r *troupev1.StepResult) { r.Text, r.Used = "I am "+r.GetAgent()+".", wire.UsedToProto(a) })
}

// stepBudgets returns the budgets in the step requests, ordered by step number.
func (w *scriptedWorker) stepBudgets() (all []budget.Limits) {
	steps := slices.Clone(w.receivedSteps())
	slices.SortStableFunc(steps, func(a, b *troupev1.ExecuteStepRequest) int { return int(a.GetStep() - b.GetStep()) })
	for _, req := range steps {
		all = append(all, wire.LimitsFromProto(req.GetBudget()))
	}
	return all
}

// line is a workflow with three steps in sequence.
const lineOfThree = "    a: {agent: research, next: b}\n    b: {agent: clarification, next: c}\n    c: {agent: synthesis, end: true}\n"

func TestTurn_PassesTheRemainingBudgetToEachStep(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, lineOfThree)
	rig.setScript("research", func(s *scriptedStep) error {
		return s.reportUsage(budget.Amounts{Iterations: 1, ModelCalls: 2, ToolCalls: 3, Tokens: 4000, Cost: 5, FanOut: 6})
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, budget.Default(), wire.LimitsFromProto(budgetFromPlan(events).GetLimits()), "the plan tells it")
	got := rig.stepBudgets()
	require.Equal(t, budget.Default(), got[0])
	left := budget.Amounts{Iterations: 199, ModelCalls: 198, ToolCalls: budget.DefaultToolCalls - 3, Tokens: budget.DefaultTokens - 4000, Cost: 100*budget.Dollar - 5, FanOut: 10}
	require.Equal(t, left, got[1].Amounts)
	left.ModelCalls-- // a worker that reports no usage is charged one model call
	require.Equal(t, left, got[2].Amounts)
	require.EqualValues(t, 4, turnResult(events).GetUsed().GetModelCalls())
	require.EqualValues(t, 4000, turnResult(events).GetUsed().GetTokens())
}

func TestTurn_DividesTheRemainingBudgetAmongBranches(t *testing.T) {
	rig := newBranchesRig(t)
	rig.setScript("research", func(s *scriptedStep) error { return s.reportUsage(budget.Amounts{Tokens: 30_000}) })
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	got := rig.stepBudgets()
	var tools, tokens int64
	for _, l := range got[:3] {
		require.InDelta(t, budget.DefaultToolCalls/3, l.ToolCalls, 1)
		tools, tokens = tools+l.ToolCalls, tokens+l.Tokens
	}
	require.EqualValues(t, budget.DefaultToolCalls, tools, "the parts are the whole")
	require.EqualValues(t, budget.DefaultTokens, tokens)
	require.EqualValues(t, budget.DefaultTokens-30_000, got[3].Tokens, "what branches did not use has come back")
	require.EqualValues(t, budget.DefaultToolCalls, got[3].ToolCalls)
}

// The usage that a lost attempt reported counts against the budget. The next attempt gets the rest.
func TestTurn_CountsUsageReportedByALostAttempt(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	rig.declareSteps(t, "    a: {agent: research, end: true}\n")
	var once sync.Once
	rig.setScript("research", func(s *scriptedStep) error {
		lost := false
		once.Do(func() { lost = true })
		if !lost {
			return s.reportUsage(budget.Amounts{ModelCalls: 1, Tokens: 7})
		}
		for _, e := range []*troupev1.Event{
			{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{Iteration: 1, Usage: &troupev1.Usage{InputTokens: 100, OutputTokens: 11}}}},
			{Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{CallId: "1", Tool: "search"}}},
		} {
			if err := s.sendEvent(e); err != nil {
				return err
			}
		}
		return nil // without a result
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	second := rig.stepBudgets()[1]
	require.EqualValues(t, budget.DefaultTokens-111, second.Tokens)
	require.EqualValues(t, budget.DefaultModelCalls-1, second.ModelCalls)
	require.EqualValues(t, budget.DefaultToolCalls-1, second.ToolCalls)
	require.EqualValues(t, 118, turnResult(events).GetUsed().GetTokens())
	require.EqualValues(t, 2, turnResult(events).GetUsed().GetModelCalls())
}

// A takeover keeps the usage of committed steps, and the budget that the caller lowered. Only the trace has this
// budget.
func TestTurn_BudgetSurvivesTakeover(t *testing.T) {
	rig := newRig(t)
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) {
			r.NextAgent, r.Used = "research", wire.UsedToProto(budget.Amounts{Tokens: 300})
		})
	})
	asked := budget.Unbounded()
	asked.Tokens = 5000
	req := textRequest("s1", "r1")
	req.Budget = &asked
	_, ref, _ := rig.loseOwnerDuringResearch(t, req)
	before := len(rig.receivedSteps())
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	result := turnResult(watchedEvents(t, second, ref, 0))
	require.Equal(t, outcomeCompleted, result.GetOutcome(), "%v", result)
	require.Len(t, rig.receivedSteps()[before:], 2)
	for _, s := range rig.receivedSteps()[1:] { // the steps before and after the takeover
		require.EqualValues(t, 4700, s.GetBudget().GetTokens(), "step %d, attempt %d", s.GetStep(), s.GetAttempt())
	}
	require.EqualValues(t, 300, result.GetUsed().GetTokens())
}

// A turn with answers continues with the budget of the pending turn.
func TestTurn_AnswersContinueWithTheBudgetOfThePendingTurn(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) {
			r.NextAgent, r.Used = "research", wire.UsedToProto(budget.Amounts{Tokens: 1000})
		})
	})
	asked := budget.Unbounded()
	asked.Tokens = 5000
	req := textRequest("s1", "r1")
	req.Budget = &asked
	require.Equal(t, inputRequired, turnResult(runToEnd(t, runner, req)).GetOutcome())
	events := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.EqualValues(t, 1000, budgetFromPlan(events).GetCarried().GetTokens())
	for _, s := range rig.receivedSteps()[2:] {
		require.EqualValues(t, 4000, s.GetBudget().GetTokens())
	}
	require.EqualValues(t, 1000, turnResult(events).GetUsed().GetTokens())
}

func TestTurn_WarnsAtFourFifthsOfItsBudget(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, lineOfThree)
	rig.setScript("research", func(s *scriptedStep) error { return s.reportUsage(budget.Amounts{ToolCalls: 399, Tokens: 4_000_000}) })
	rig.setScript("clarification", func(s *scriptedStep) error { return s.reportUsage(budget.Amounts{ToolCalls: 1, Tokens: 1}) })
	runner, scrape, logs := runAndScrape(t, rig)
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	runner.Close(t.Context())
	var told []string
	for _, w := range collectPayloads(events, (*troupev1.Event).GetWarning) {
		require.Equal(t, spending.ReasonNearLimit, w.GetReason())
		told = append(told, w.GetMessage())
	}
	require.Equal(t, []string{"limits.tokens: 4000000 of 5000000 are used", "limits.toolCalls: 400 of 500 are used"}, told)
	require.Equal(t, 2, logs.FilterMessage("a turn has used most of its budget").Len())
	require.Equal(t, 3, logs.FilterMessage("a turn used another step of its budget").Len())
	require.Regexp(t, `(?m)^troupe_turn_budget_sum\{.*of="toolCalls".*\} 0.8$`, scrape())
}

func TestTurn_EndsWhenItsStepExceedsTheBudget(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, lineOfThree)
	rig.setScript("research", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{
			Failure: grpcfailure.ToProto(budget.NewExceededError(budget.ToolCalls, 50, 50, 1)), Used: wire.UsedToProto(budget.Amounts{ToolCalls: 50}),
		})
	})
	runner, _, logs := runAndScrape(t, rig)
	result := turnResult(runToEnd(t, runner, textRequest("s1", "r1")))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_POLICY_BUDGET, result.GetFailure().GetMode())
	require.Equal(t, "toolCalls", result.GetFailure().GetFacts()["budget"])
	require.EqualValues(t, 50, result.GetUsed().GetToolCalls(), "a step that failed has used it, too")
	require.Equal(t, []string{"research"}, rig.askedAgents())
	runner.Close(t.Context())
	require.Equal(t, 1, logs.FilterMessage("a turn exhausted its budget").Len())
}

// childRequest returns the request of an agent for a child turn.
func childRequest(depth int32, given budget.Limits) request.Request {
	req := textRequest("s1", "r1")
	req.Parent, req.Budget = &troupev1.Parent{TraceId: strings.Repeat("1", 32), Depth: depth}, &given
	return req
}

func TestRequest_BudgetCanOnlyLowerTheWorkflowBudget(t *testing.T) {
	flow := &workflow.Workflow{Budget: budget.Default()}
	with := func(change func(*budget.Limits)) budget.Limits {
		l := budget.Unbounded()
		change(&l)
		return l
	}
	for field, l := range map[string]budget.Limits{
		"budget.tokens":     with(func(l *budget.Limits) { l.Tokens = budget.DefaultTokens + 1 }),
		"budget.toolCalls":  with(func(l *budget.Limits) { l.ToolCalls = 0 }),
		"budget.cost: 100.": with(func(l *budget.Limits) { l.Cost = 100*budget.Dollar + 1 }),
		"budget.depth":      with(func(l *budget.Limits) { l.Depth = 5 }),
		"budget.policy":     with(func(l *budget.Limits) { l.Policy = budget.Warn }),
	} {
		req := textRequest("s1", "r1")
		req.Budget = &l
		_, err := req.Allowance(flow.Budget, request.Labels{})
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), field)
		require.ErrorContains(t, err, field)
	}

	given := with(func(l *budget.Limits) { l.Tokens, l.ToolCalls, l.Depth = budget.DefaultTokens+1, 0, 3 })
	got, err := childRequest(2, given).Allowance(flow.Budget, request.Labels{})
	require.NoError(t, err, "of a child it is what is left above")
	require.EqualValues(t, budget.DefaultTokens, got.Limits.Tokens)
	require.Zero(t, got.Limits.ToolCalls)
	require.Equal(t, 3, got.Limits.Depth)
	require.Equal(t, 2, got.Depth)
}

// A turn that is nested too deeply is rejected before admission, and no session is created for it. The steps of
// other turns know their depth.
func TestTurn_LimitsNestingDepth(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	for _, req := range []request.Request{childRequest(budget.DefaultDepth+1, budget.Unbounded()), childRequest(2,
		budget.Limits{Amounts: budget.Unbounded().Amounts, Depth: 1})} {
		for _, err := range runner.Orchestrate(t.Context(), req) {
			require.Equal(t, failure.PolicyBudget, failure.ModeOf(err))
			require.ErrorContains(t, err, "limits.depth")
		}
	}
	require.Empty(t, rig.askedAgents())
	events := runToEnd(t, runner, childRequest(budget.DefaultDepth, budget.Unbounded()))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	require.EqualValues(t, budget.DefaultDepth, rig.receivedSteps()[0].GetBudget().GetLevel())
}

// The fingerprint does not depend on the budget, so a repeated request may have another budget.
func TestRequest_FingerprintIgnoresTheBudget(t *testing.T) {
	req := textRequest("s1", "r1")
	same := req
	less := budget.Default()
	less.Tokens = 5
	same.Budget, same.Labels.Budget = &less, &request.Allowance{Limits: less}
	require.Equal(t, req.Fingerprint(), same.Fingerprint())
}

// Steps know the targets that led to them. A request for one of these is refused before admission, so that agents cannot ask
// each other in a circle, however much depth is left.
// Req: OC-29
func TestTurn_RefusesATargetThatLedToTheRequest(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	req := childRequest(1, budget.Unbounded())
	req.Target, req.Parent.Ancestors = "research", []string{"desk", "tax"}
	runToEnd(t, runner, req)
	require.Equal(t, []string{"desk", "tax", "research"}, rig.receivedSteps()[0].GetAncestors())
	req = childRequest(2, budget.Unbounded())
	req.Session, req.Parent.Ancestors = "s2", []string{"desk", "research-assistant", "research"}
	runs := 0
	for _, err := range runner.Orchestrate(t.Context(), req) {
		require.Equal(t, failure.PolicyBudget, failure.ModeOf(err))
		require.ErrorContains(t, err, "desk > research-assistant > research > research-assistant")
		runs++
	}
	require.Equal(t, 1, runs)
	require.False(t, rig.isTurnStored(t, req))
	require.Len(t, rig.receivedSteps(), 1)

	// A turn that answers stays where it was.
	rig.makeResearchWait(approvalCall())
	req.Session, req.Parent.Ancestors = "s3", []string{"desk"}
	runToEnd(t, runner, req)
	answers := answerRequest("r2", approvalAnswer("1-2-2"))
	answers.Session = "s3"
	runToEnd(t, runner, answers)
	again := rig.receivedSteps()[3]
	require.Equal(t, "research", again.GetAgent())
	require.Equal(t, []string{"desk", "research-assistant", "research"}, again.GetAncestors())
}
