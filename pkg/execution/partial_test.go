package execution

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// steps are those from 1 to n.
func steps(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// Req: OC-26
func TestPartial_SaysWhatIsBestDone(t *testing.T) {
	for _, row := range []struct {
		completed, failed, total int
		mode                     failure.Mode
		ratio                    float64
		recoverable              bool
		remaining                int
		recovery                 Recovery
	}{
		{0, 0, 0, failure.ResourceAPI, 0, false, 0, RetryAll},
		{0, 1, 0, failure.ResourceAPI, 0, false, 1, RetryAll},
		{1, 1, 0, failure.ResourceAPI, 0.5, true, 1, RetryFromCheckpoint},
		{3, 1, 0, failure.ResourceAPI, 0.75, true, 1, RetryFailedSteps},
		{3, 1, 4, failure.SystemTimeout, 0.75, true, 1, RetryFailedSteps},
		{1, 1, 4, failure.AgentTimeout, 0.25, true, 3, RetryFromCheckpoint},
		{1, 1, 5, failure.PartialTimeout, 0.2, true, 4, RetryAll},
		{4, 1, 5, failure.PolicyBudget, 0.8, false, 1, Manual},           // terminal
		{4, 1, 5, failure.UserCancelled, 0.8, false, 1, Manual},          // terminal
		{4, 1, 5, failure.UserInvalidInput, 0.8, false, 1, Manual},       // not retryable
		{6, 1, 3, failure.ResourceCircuit, 1, true, 1, RetryFailedSteps}, // it came to some steps twice
	} {
		p := Partial{Completed: steps(row.completed), Mode: row.mode, Total: row.total}
		for i := range row.failed {
			p.Failed = append(p.Failed, row.completed+i+1)
		}
		require.InDelta(t, row.ratio, p.Ratio(), 1e-9, "%+v", row)
		require.Equal(t, row.recoverable, p.Recoverable(), "%+v", row)
		require.Equal(t, row.remaining, p.Remaining(), "%+v", row)
		require.Equal(t, row.recovery, p.Recovery(), "%+v", row)
	}
}

// Req: OC-26
func TestPartial_DataIsOfCompletedStepsAndCut(t *testing.T) {
	p := Partial{Completed: []int{1, 2}, Failed: []int{3}, Results: map[int]Result{
		2: {Text: strings.Repeat("a", 600), Observations: make([]string, MaxObservations)},
		1: {Text: "one", Observations: []string{"seen"}},
		3: {Text: "half of it"},
	}}
	for i := range p.Results[2].Observations {
		p.Results[2].Observations[i] = "more"
	}
	data := p.Data()
	require.Len(t, data, MaxPartialData)
	require.Equal(t, []string{"one", "seen"}, data[:2])
	require.LessOrEqual(t, len([]rune(data[2])), MaxPartialText)
}

func TestStep_ToolsKnowTheirCallsByTheTurnThatFailed(t *testing.T) {
	require.Equal(t, "t1", Step{TurnID: "t1"}.CallTurn())
	require.Equal(t, "t1", Step{TurnID: "t2", Origin: "t1"}.CallTurn())
}
