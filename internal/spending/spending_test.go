package spending_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/telemetry/structured"
	"github.com/troupe-dev/troupe/internal/tracelog"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// eventAt sets the step, attempt and branch of an event and returns it.
func eventAt(step, attempt int32, branch string, e *troupev1.Event) *troupev1.Event {
	e.Step, e.Attempt, e.Branch = step, attempt, branch
	return e
}

func modelCall(tokens int64) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{Iteration: 1, Usage: &troupev1.Usage{
		InputTokens:  tokens,
		CostMicroUsd: 1,
	}}}}
}

func toolStarted() *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{}}}
}

func remoteStarted(request, call string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_SubtaskStarted{SubtaskStarted: &troupev1.SubtaskStarted{RequestId: request, CallId: call}}}
}

func stepFinished(r *troupev1.StepResult) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: r}}}
}

func planEvent(limits budget.Limits, carried budget.Amounts) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Budget: &troupev1.TurnBudget{
		Steps: 20, Limits: wire.LimitsToProto(limits), Carried: wire.UsedToProto(carried),
	}}}}
}

func newTally(events ...*troupev1.Event) *spending.Tally {
	var s spending.Tally
	for _, e := range events {
		s.AddEvent(e)
	}
	return &s
}

func TestTally_AddsUpTheEventsOfATrace(t *testing.T) {
	used := budget.Amounts{Iterations: 5, ModelCalls: 6, ToolCalls: 7, Tokens: 80, Cost: 9, FanOut: 2}
	for name, c := range map[string]struct {
		events []*troupev1.Event
		want   budget.Amounts
	}{
		"nothing": {nil, budget.Amounts{}},
		"a lost attempt counts by its events, in addition to its successor": {
			[]*troupev1.Event{
				eventAt(1, 1, "", modelCall(10)), eventAt(1, 1, "", toolStarted()), eventAt(1, 1, "",
					&troupev1.Event{Payload: &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{}}}),
				eventAt(1, 2, "", modelCall(20)), eventAt(1, 2, "", stepFinished(&troupev1.StepResult{Used: wire.UsedToProto(used)})),
			},
			used.Add(budget.Amounts{Iterations: 1, ModelCalls: 1, ToolCalls: 1, Tokens: 10, Cost: 1}),
		},
		"a failed attempt that is retried counts by its retraction": {
			[]*troupev1.Event{
				eventAt(1, 1, "", modelCall(10)), eventAt(1, 1, "",
					&troupev1.Event{Payload: &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{Used: wire.UsedToProto(used)}}}),
			},
			used,
		},
		"a worker that reports no used amounts": {
			[]*troupev1.Event{
				eventAt(1, 1, "", modelCall(10)),
				eventAt(1, 1, "", stepFinished(&troupev1.StepResult{Iterations: 2, ToolsCalled: []string{"a"}, Usage: &troupev1.Usage{
					ModelCalls:  3,
					InputTokens: 4, OutputTokens: 20,
				}})),
			},
			budget.Amounts{Iterations: 2, ModelCalls: 3, ToolCalls: 1, Tokens: 24, Cost: 1},
		},
		"the work of a remote turn counts with the result": {
			[]*troupev1.Event{
				eventAt(1, 1, "team.remote", remoteStarted("r", "")), eventAt(1, 1, "team.remote", modelCall(10)), eventAt(1, 1, "team.remote.below",
					toolStarted()),
				eventAt(1, 1, "team.remote", remoteStarted("of the remote turn", "")), eventAt(1, 1, "team.remotely", modelCall(1)),
			},
			budget.Amounts{Iterations: 1, ModelCalls: 1, Tokens: 1, Cost: 1, FanOut: 1},
		},
		"a remote agent as the agent of the step": {
			[]*troupev1.Event{eventAt(1, 1, "", remoteStarted("r", "")), eventAt(1, 1, "", modelCall(10)), eventAt(1, 1, "remote.below", modelCall(10))},
			budget.Amounts{FanOut: 1},
		},
		"a successor attaches to the remote turns": {
			[]*troupev1.Event{
				eventAt(1, 1, "", remoteStarted("r", "call")), eventAt(1, 2, "", remoteStarted("r", "call")), eventAt(2, 1, "", remoteStarted("s", "call")),
			},
			budget.Amounts{FanOut: 2},
		},
		"amounts carried over from earlier turns": {
			[]*troupev1.Event{planEvent(budget.Default(), used), eventAt(1, 1, "", modelCall(10))},
			used.Add(budget.Amounts{Iterations: 1, ModelCalls: 1, Tokens: 10, Cost: 1}),
		},
		"negative usage counts as zero": {
			[]*troupev1.Event{eventAt(1, 1, "", modelCall(-10)), eventAt(1, 1, "", stepFinished(&troupev1.StepResult{Used: &troupev1.BudgetUse{
				Tokens:    -5,
				ToolCalls: 1,
			}}))},
			budget.Amounts{ToolCalls: 1},
		},
	} {
		require.Equal(t, c.want, newTally(c.events...).Used(), name)
	}
}

func TestTally_WarnsAboutEachKindOnce(t *testing.T) {
	events := []*troupev1.Event{planEvent(budget.Default(), budget.Amounts{}), eventAt(1, 1, "", modelCall(3_999_999))}
	s := newTally(events...)
	require.Empty(t, s.DueWarnings())
	events = append(events, eventAt(1, 1, "", modelCall(1)))
	s.AddEvent(events[2])
	due := s.DueWarnings()
	require.Len(t, due, 1)
	require.Equal(t, spending.ReasonNearLimit, due[0].GetReason())
	require.Equal(t, "limits.tokens: 4000000 of 5000000 are used", due[0].GetMessage())
	require.Empty(t, s.DueWarnings(), "it was published")

	published := &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: due[0]}}
	require.Empty(t, newTally(append(events, published)...).DueWarnings(), "so it is not published again after a takeover")
	require.Len(t, newTally(events...).DueWarnings(), 1, "one that was not published is published after a takeover")
}

func TestTally_WarnsAboutTimeOnce(t *testing.T) {
	require.Equal(t, 12*time.Second, spending.TimeLeftAtWarning(time.Minute))
	s := newTally()
	w := s.TimeWarning(48*time.Second, time.Minute)
	require.Equal(t, spending.ReasonNearLimit, w.GetReason())
	require.Equal(t, "timeout: 48s of 1m0s have passed", w.GetMessage())
	require.Nil(t, s.TimeWarning(50*time.Second, time.Minute), "it was published")

	published := &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: w}}
	require.Nil(t, newTally(published).TimeWarning(50*time.Second, time.Minute), "so it is not published again after a takeover")
	var log tracelog.Translator
	happened := log.Translate(published)
	require.Len(t, happened, 1)
	require.Equal(t, structured.BudgetWarning, happened[0].Name)
	require.Equal(t, "timeout", happened[0].Data["of"])
}

func TestDescribeUsed_ListsUsedKinds(t *testing.T) {
	used := wire.UsedToProto(budget.Amounts{ToolCalls: 2, Tokens: 812, Cost: 1_500_000})
	require.Equal(t, "toolCalls 2 of 500, tokens 812 of 5000000, cost 1.5 of 100", spending.DescribeUsed(used, wire.LimitsToProto(budget.Default())))
	require.Equal(t, "toolCalls 2, tokens 812, cost 1.5", spending.DescribeUsed(used, nil))
	require.Empty(t, spending.DescribeUsed(nil, nil))
}
