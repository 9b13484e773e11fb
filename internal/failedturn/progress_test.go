package failedturn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// stepNumbers returns the numbers from 1 to n.
func stepNumbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// Req: OC-26
func TestProgress_RecommendsARecovery(t *testing.T) {
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
		{4, 1, 5, failure.PolicyBudget, 0.8, false, 1, ManualRecovery},     // terminal
		{4, 1, 5, failure.UserCancelled, 0.8, false, 1, ManualRecovery},    // terminal
		{4, 1, 5, failure.UserInvalidInput, 0.8, false, 1, ManualRecovery}, // not retryable
		{6, 1, 3, failure.ResourceCircuit, 1, true, 1, RetryFailedSteps},   // some steps ran twice
	} {
		p := Progress{CompletedSteps: stepNumbers(row.completed), Mode: row.mode, PlannedSteps: row.total}
		for i := range row.failed {
			p.FailedSteps = append(p.FailedSteps, row.completed+i+1)
		}
		require.InDelta(t, row.ratio, p.CompletedRatio(), 1e-9, "%+v", row)
		require.Equal(t, row.recoverable, p.IsRecoverable(), "%+v", row)
		require.Equal(t, row.remaining, p.RemainingSteps(), "%+v", row)
		require.Equal(t, row.recovery, p.RecommendedRecovery(), "%+v", row)
	}
}

// Req: OC-26
func TestProgress_CompletedTextsAreCutAndLimited(t *testing.T) {
	p := Progress{CompletedSteps: []int{1, 2}, FailedSteps: []int{3}, Results: map[int]execution.Result{
		2: {Text: strings.Repeat("a", 600), Observations: make([]string, execution.MaxObservations)},
		1: {Text: "one", Observations: []string{"seen"}},
		3: {Text: "half of it"},
	}}
	for i := range p.Results[2].Observations {
		p.Results[2].Observations[i] = "more"
	}
	data := p.CompletedTexts()
	require.Len(t, data, MaxTexts)
	require.Equal(t, []string{"one", "seen"}, data[:2])
	require.LessOrEqual(t, len([]rune(data[2])), MaxTextLength)
}
