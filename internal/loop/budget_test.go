package loop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/loop/budgetcheck"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// newLedger returns a ledger whose default limits were modified by change.
func newLedger(change func(*budget.Limits)) *budget.Ledger {
	limits := budget.Default()
	change(&limits)
	return budget.New(limits, 0)
}

// requireBudgetExceeded requires that a run ended because a budget of the given kind was exceeded.
func requireBudgetExceeded(t *testing.T, err error, kind budget.Kind) {
	t.Helper()
	e, ok := errors.AsType[*failure.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, failure.PolicyBudget, e.Mode, "%v", err)
	require.Equal(t, string(kind), e.Facts["budget"])
	for _, fact := range []string{"limit", "used", "asked"} {
		require.Contains(t, e.Facts, fact)
	}
}

// A call that would exceed the budget is rejected before it is made. The amounts themselves are tested in package
// budget.
// Req: OC-29
func TestLoop_ChecksTheBudgetBeforeEachCall(t *testing.T) {
	spent := execution.Usage{InputTokens: 90, OutputTokens: 30, CostMicros: 40}
	for kind, c := range map[budget.Kind]struct {
		limit         func(*budget.Limits)
		models, tools int // that were called
	}{
		budget.ModelCalls: {func(l *budget.Limits) { l.ModelCalls = 1 }, 1, 2},
		budget.Iterations: {func(l *budget.Limits) { l.Iterations = 1 }, 1, 2},
		budget.Tokens:     {func(l *budget.Limits) { l.Tokens = 120 }, 1, 2},
		budget.Cost:       {func(l *budget.Limits) { l.Cost = 40 }, 1, 2},
		budget.ToolCalls:  {func(l *budget.Limits) { l.ToolCalls = 3 }, 2, 3},
	} {
		t.Run(string(kind), func(t *testing.T) {
			round := toolCallsReply("spy", "spy")
			round.Usage = spent
			model := scripted.New(round, round, scripted.Say("done"))
			ran := 0
			in := newInput("go")
			in.Budget = newLedger(c.limit)
			_, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: observingTools(t, func(context.Context) { ran++ })}, in, ignoreEvents)
			requireBudgetExceeded(t, err, kind)
			require.Len(t, model.Requests(), c.models)
			require.Equal(t, c.tools, ran)
			used := in.Budget.Used()
			require.EqualValues(t, c.models, used.ModelCalls)
			require.EqualValues(t, c.tools, used.ToolCalls)
			require.EqualValues(t, 120*c.models, used.Tokens)
			require.EqualValues(t, 40*c.models, used.Cost)
		})
	}
}

// A request is rejected before it is sent if its estimated tokens exceed the remaining budget.
func TestLoop_EstimatesTheTokensOfARequest(t *testing.T) {
	model := scripted.New(scripted.Say("done"))
	in := newInput(fmt.Sprintf("%0400d", 7)) // about 100 tokens
	in.Budget = newLedger(func(l *budget.Limits) { l.Tokens = 100 })
	_, err := runToEnd(t.Context(), loop.Loop{Model: model}, in, ignoreEvents)
	requireBudgetExceeded(t, err, budget.Tokens)
	require.Empty(t, model.Requests())
}

// If the budget is too small for all concurrent tools of a round, none of them runs or is recorded in the journal.
func TestLoop_RunsNoToolOfARoundThatExceedsTheBudget(t *testing.T) {
	w := &toolRuns{}
	j := &fakeJournal{}
	model := scripted.New(scripted.Call(toolCall("1", "at_most_once", "a"), toolCall("2", "at_most_once", "b")))
	in := newInput("go")
	in.Journal, in.Budget = j, newLedger(func(l *budget.Limits) { l.ToolCalls = 1 })
	_, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: w.tools(t), Parallel: true}, in, ignoreEvents)
	requireBudgetExceeded(t, err, budget.ToolCalls)
	require.Empty(t, w.recorded)
	require.Len(t, j.durable, 1, "the reply of the model, and no intent of a tool: %v", j.durable)
}

func TestLoop_WarnsAndContinuesUnderAWarningPolicy(t *testing.T) {
	round := toolCallsReply("spy", "spy")
	round.Usage = execution.Usage{InputTokens: 90, OutputTokens: 30}
	ran := 0
	in := newInput("go")
	in.Budget = newLedger(func(l *budget.Limits) { l.ToolCalls, l.Tokens, l.Policy = 3, 120, budget.Warn })
	var got eventRecorder
	out, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(round, round, round, scripted.Say("done")), Tools: observingTools(t,
		func(context.Context) { ran++ })}, in, got.emit)
	require.NoError(t, err)
	require.Equal(t, "done", out.Text)
	require.Equal(t, 6, ran)
	var emitted []string
	for _, e := range got.events {
		if warning, ok := e.(event.Warning); ok {
			require.Equal(t, budgetcheck.ReasonBudgetExceeded, warning.Reason)
			emitted = append(emitted, warning.Message[:len("limits.to")])
		}
	}
	require.Equal(t, []string{"limits.to", "limits.to"}, emitted, "once of tokens, once of tool calls")
}

// A replay uses no budget, because the attempt that made the recorded calls has already counted them.
func TestLoop_ReplaysWithoutUsingTheBudget(t *testing.T) {
	w := &toolRuns{}
	j := &fakeJournal{}
	replies := []scripted.Reply{scripted.Call(toolCall("1", "read", "a")), scripted.Call(toolCall("2", "idempotent", "b")), scripted.Say("done")}
	first := newInput("go")
	first.Journal, first.Budget = j, newLedger(func(l *budget.Limits) { l.ModelCalls = 2 })
	_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(replies...), Tools: w.tools(t)}, first, ignoreEvents)
	requireBudgetExceeded(t, err, budget.ModelCalls)

	second := newInput("go")
	second.Journal, second.Budget = j, newLedger(func(l *budget.Limits) { l.ModelCalls, l.ToolCalls = 1, 0 })
	out, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(replies[2]), Tools: w.tools(t)}, second, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, "done", out.Text)
	require.EqualValues(t, 1, second.Budget.Used().ModelCalls)
	require.Zero(t, second.Budget.Used().ToolCalls)
}

// No handler can bypass the budget. A handler cannot answer for the rejected model call. A handler that asks the
// model itself and ignores the rejection does not continue the run either.
func TestLoop_NoHandlerContinuesWhenTheBudgetIsExceeded(t *testing.T) {
	stand := hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error {
		f.Reply = &hook.LLMReply{Text: "I answer instead."}
		return nil
	})
	in := newInput("go", stand)
	in.Budget = newLedger(func(l *budget.Limits) { l.ModelCalls = 0 })
	_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New()}, in, ignoreEvents)
	requireBudgetExceeded(t, err, budget.ModelCalls)

	asks := hook.AfterLLM(func(ctx context.Context, reply *hook.LLMReply) error {
		_, _ = reply.Ask(ctx, llm.Request{System: "what do you think of it?"})
		return nil
	})
	in = newInput("go", asks)
	in.Budget = newLedger(func(l *budget.Limits) { l.ModelCalls = 1 })
	_, err = runToEnd(t.Context(), loop.Loop{Model: scripted.New(scripted.Say("done"))}, in, ignoreEvents)
	requireBudgetExceeded(t, err, budget.ModelCalls)
}
