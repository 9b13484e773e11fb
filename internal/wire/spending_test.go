package wire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/telemetry/structured"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// at is an event of an attempt of a step, in a branch.
func at(step, attempt int32, branch string, e *troupev1.Event) *troupev1.Event {
	e.Step, e.Attempt, e.Branch = step, attempt, branch
	return e
}

func asked(tokens int64) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{Iteration: 1, Usage: &troupev1.Usage{InputTokens: tokens, CostMicroUsd: 1}}}}
}

func ran() *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{}}}
}

func begun(request, call string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_SubtaskStarted{SubtaskStarted: &troupev1.SubtaskStarted{RequestId: request, CallId: call}}}
}

func result(r *troupev1.StepResult) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: r}}}
}

func planned(limits budget.Limits, carried budget.Amounts) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Budget: &troupev1.TurnBudget{
		Steps: 20, Limits: wire.LimitsToProto(limits), Carried: wire.UsedToProto(carried),
	}}}}
}

func spending(events ...*troupev1.Event) *wire.Spending {
	var s wire.Spending
	for _, e := range events {
		s.Note(e)
	}
	return &s
}

func TestSpending_AddsUpWhatATraceTells(t *testing.T) {
	used := budget.Amounts{Iterations: 5, ModelCalls: 6, ToolCalls: 7, Tokens: 80, Cost: 9, FanOut: 2}
	for name, c := range map[string]struct {
		events []*troupev1.Event
		want   budget.Amounts
	}{
		"nothing": {nil, budget.Amounts{}},
		"a lost attempt counts by what it told, and its successor beside it": {
			[]*troupev1.Event{
				at(1, 1, "", asked(10)), at(1, 1, "", ran()), at(1, 1, "", &troupev1.Event{Payload: &troupev1.Event_PartReset{PartReset: &troupev1.PartReset{}}}),
				at(1, 2, "", asked(20)), at(1, 2, "", result(&troupev1.StepResult{Used: wire.UsedToProto(used)})),
			},
			used.Add(budget.Amounts{Iterations: 1, ModelCalls: 1, ToolCalls: 1, Tokens: 10, Cost: 1}),
		},
		"an attempt that failed and is tried again counts by its own word": {
			[]*troupev1.Event{
				at(1, 1, "", asked(10)), at(1, 1, "", &troupev1.Event{Payload: &troupev1.Event_PartReset{PartReset: &troupev1.PartReset{Used: wire.UsedToProto(used)}}}),
			},
			used,
		},
		"a worker that does not count": {
			[]*troupev1.Event{
				at(1, 1, "", asked(10)),
				at(1, 1, "", result(&troupev1.StepResult{Iterations: 2, ToolsCalled: []string{"a"}, Usage: &troupev1.Usage{ModelCalls: 3, InputTokens: 4, OutputTokens: 20}})),
			},
			budget.Amounts{Iterations: 2, ModelCalls: 3, ToolCalls: 1, Tokens: 24, Cost: 1},
		},
		"what a remote turn does counts with the result": {
			[]*troupev1.Event{
				at(1, 1, "team.remote", begun("r", "")), at(1, 1, "team.remote", asked(10)), at(1, 1, "team.remote.below", ran()),
				at(1, 1, "team.remote", begun("of the remote turn", "")), at(1, 1, "team.remotely", asked(1)),
			},
			budget.Amounts{Iterations: 1, ModelCalls: 1, Tokens: 1, Cost: 1, FanOut: 1},
		},
		"an agent that is remote itself": {
			[]*troupev1.Event{at(1, 1, "", begun("r", "")), at(1, 1, "", asked(10)), at(1, 1, "remote.below", asked(10))},
			budget.Amounts{FanOut: 1},
		},
		"a successor attaches to the remote turns": {
			[]*troupev1.Event{
				at(1, 1, "", begun("r", "call")), at(1, 2, "", begun("r", "call")), at(2, 1, "", begun("s", "call")),
			},
			budget.Amounts{FanOut: 2},
		},
		"what was used before the trace": {
			[]*troupev1.Event{planned(budget.Default(), used), at(1, 1, "", asked(10))},
			used.Add(budget.Amounts{Iterations: 1, ModelCalls: 1, Tokens: 10, Cost: 1}),
		},
		"nobody uses less than nothing": {
			[]*troupev1.Event{at(1, 1, "", asked(-10)), at(1, 1, "", result(&troupev1.StepResult{Used: &troupev1.BudgetUse{Tokens: -5, ToolCalls: 1}}))},
			budget.Amounts{ToolCalls: 1},
		},
	} {
		require.Equal(t, c.want, spending(c.events...).Used(), name)
	}
}

func TestSpending_WarnsOfEachKindOnce(t *testing.T) {
	events := []*troupev1.Event{planned(budget.Default(), budget.Amounts{}), at(1, 1, "", asked(79_999))}
	s := spending(events...)
	require.Empty(t, s.Due())
	events = append(events, at(1, 1, "", asked(1)))
	s.Note(events[2])
	due := s.Due()
	require.Len(t, due, 1)
	require.Equal(t, wire.ReasonBudget, due[0].GetReason())
	require.Equal(t, "limits.tokens: 80000 of 100000 are used", due[0].GetMessage())
	require.Empty(t, s.Due(), "it was told")

	told := &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: due[0]}}
	require.Empty(t, spending(append(events, told)...).Due(), "and a successor knows that")
	require.Len(t, spending(events...).Due(), 1, "one that was not told is told by the successor")
}

func TestSpending_WarnsOfTimeOnce(t *testing.T) {
	require.Equal(t, 12*time.Second, wire.TimeToWarn(time.Minute))
	s := spending()
	w := s.Late(48*time.Second, time.Minute)
	require.Equal(t, wire.ReasonBudget, w.GetReason())
	require.Equal(t, "timeout: 48s of 1m0s are gone", w.GetMessage())
	require.Nil(t, s.Late(50*time.Second, time.Minute), "it was told")

	told := &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: w}}
	require.Nil(t, spending(told).Late(50*time.Second, time.Minute), "and a successor knows that")
	var log wire.Translation
	happened := log.Of(told)
	require.Len(t, happened, 1)
	require.Equal(t, structured.BudgetWarning, happened[0].Name)
	require.Equal(t, "timeout", happened[0].Data["of"])
}

func TestUseText_IsForAPerson(t *testing.T) {
	used := wire.UsedToProto(budget.Amounts{ToolCalls: 2, Tokens: 812, Cost: 1_500_000})
	require.Equal(t, "toolCalls 2 of 50, tokens 812 of 100000, cost 1.5 of 100", wire.UseText(used, wire.LimitsToProto(budget.Default())))
	require.Equal(t, "toolCalls 2, tokens 812, cost 1.5", wire.UseText(used, nil))
	require.Empty(t, wire.UseText(nil, nil))
}

func TestLimits_RoundTrip(t *testing.T) {
	none := budget.Default()
	none.ToolCalls, none.Tokens, none.Policy = 0, budget.Unlimited, budget.Warn
	for _, l := range []budget.Limits{budget.Default(), budget.Open(), none} {
		require.Equal(t, l, wire.LimitsFromProto(wire.LimitsToProto(l)))
	}
	require.Equal(t, budget.Open(), wire.LimitsFromProto(nil))
	require.Nil(t, wire.LedgerFromProto(nil))
}
