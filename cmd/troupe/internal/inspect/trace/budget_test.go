package trace

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestDescribeTrace_PrintsUsedBudget(t *testing.T) {
	events := []*troupev1.Event{
		{Sequence: 1, Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Budget: &troupev1.TurnBudget{
			Steps:  20,
			Limits: wire.LimitsToProto(budget.Default()),
		}}}},
		{Sequence: 2, Step: 1, Attempt: 1, Agent: "research", Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{
			Result: &troupev1.StepResult{Used: wire.UsedToProto(budget.Amounts{ToolCalls: 2, Tokens: 812})},
		}}},
	}
	require.Equal(t, "toolCalls 2 of 500, tokens 812 of 5000000", formatBudgetUse(events))
	var out bytes.Buffer
	printTree(console.Terminal{Out: &out}, &troupev1.Trace{}, nil, events)
	require.Regexp(t, `(?m)^budget +toolCalls 2 of 500, tokens 812 of 5000000$`, out.String())
	require.Empty(t, formatBudgetUse(nil))
}
