package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// The table has exactly one row for every possible combination of kind and lookup result.
func TestFindCase_HasOneCaseForEachCombination(t *testing.T) {
	possible := map[RequestKind][]LookupResult{
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
				require.NotEmpty(t, FindCase(kind, found, pending), "%s, %s, pending: %t", kind, found, pending)
			}
		}
	}
	for _, d := range decisions {
		for _, found := range d.found {
			require.Contains(t, possible[d.kind], found, "%s, %s", d.kind, found)
			require.Equal(t, d.result, FindCase(d.kind, found, d.hasPendingCalls), "%s, %s: no earlier row hides it", d.kind, found)
			rows++
		}
	}
	require.Equal(t, 1+6+5+5+4, rows, "answers that have no turn yet have two")
	require.Empty(t, FindCase(Text, Closed, false))
	require.Empty(t, FindCase(Orphan, "", false), "nothing follows from what is not known")
}

func TestFindCase_DistinguishesPendingFromLateAnswers(t *testing.T) {
	require.Equal(t, ContinueTurn, FindCase(Answers, Absent, true))
	require.Equal(t, NothingPending, FindCase(Answers, Absent, false))
	require.Equal(t, Repeated, FindCase(Answers, Closed, false), "the request was answered before")
}

func TestKindOf_ReturnsTheKindOfARequest(t *testing.T) {
	require.Equal(t, Text, KindOf(request.Request{Text: "Why?"}))
	require.Equal(t, Answers, KindOf(request.Request{Answers: []execution.Answer{{ID: "1-1-1"}}}))
	require.Equal(t, Resume, KindOf(request.Request{Source: request.Source{Trace: "t"}}))
	require.Equal(t, Fork, KindOf(request.Request{Source: request.Source{Trace: "t", Step: 2, IsFork: true}}))
}
