package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// The table has exactly one row for every possible combination of kind and lookup result.
func TestCaseOf_HasOneCaseForEachCombination(t *testing.T) {
	possible := map[Kind][]Found{
		Text:    {NotAsked},
		Answers: {Absent, MaybeBegun, LeaseHeld, LeaseExpired, Closed},
		Resume:  {Absent, MaybeBegun, LeaseHeld, LeaseExpired, Closed},
		Fork:    {Absent, MaybeBegun, LeaseHeld, LeaseExpired, Closed},
		Orphan:  {Absent, LeaseHeld, LeaseExpired, Closed},
	}
	rows := 0
	for kind, all := range possible {
		for _, found := range all {
			for _, pending := range []bool{true, false} {
				require.NotEmpty(t, CaseOf(kind, found, pending), "%s, %s, pending: %t", kind, found, pending)
			}
		}
	}
	for _, d := range decisions {
		for _, found := range d.found {
			require.Contains(t, possible[d.kind], found, "%s, %s", d.kind, found)
			require.Equal(t, d.result, CaseOf(d.kind, found, d.pending), "%s, %s: no earlier row hides it", d.kind, found)
			rows++
		}
	}
	require.Equal(t, 1+6+5+5+4, rows, "answers that have no turn yet have two")
	require.Empty(t, CaseOf(Text, Closed, false))
	require.Empty(t, CaseOf(Orphan, "", false), "nothing follows from what is not known")
}

func TestCaseOf_DistinguishesPendingFromLateAnswers(t *testing.T) {
	require.Equal(t, ContinueTurn, CaseOf(Answers, Absent, true))
	require.Equal(t, NothingPending, CaseOf(Answers, Absent, false))
	require.Equal(t, Repeated, CaseOf(Answers, Closed, false), "the request was answered before")
}

func TestKindOf_ReturnsTheKindOfARequest(t *testing.T) {
	require.Equal(t, Text, KindOf(request.Request{Text: "Why?"}))
	require.Equal(t, Answers, KindOf(request.Request{Answers: []execution.Answer{{ID: "1-1-1"}}}))
	require.Equal(t, Resume, KindOf(request.Request{From: request.From{Trace: "t"}}))
	require.Equal(t, Fork, KindOf(request.Request{From: request.From{Trace: "t", Step: 2, IsFork: true}}))
}
