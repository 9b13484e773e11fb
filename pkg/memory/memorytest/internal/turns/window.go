package turns

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func windowTests() fixture.Tests {
	return fixture.Tests{
		"Window_IsLimitedByTokens":       windowIsLimitedByTokens,
		"Window_BeginsOutsideToolRounds": windowBeginsOutsideToolRounds,
		"Window_BeginsWithTheSummary":    windowBeginsWithTheSummary,
		"Window_IsTheSameAfterATakeover": windowIsTheSameAfterATakeover,
	}
}

// windowIsLimitedByTokens checks that the window counts four bytes as one token.
// Req: LP-25
func windowIsLimitedByTokens(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for i := range 4 {
		fixture.RunTurn(t, store, ref, fmt.Sprintf("t%d", i), "12345678", "12345678") // two tokens each
	}
	for tokens, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 100: 9, 0: 9} {
		ask := fixture.NewBegin(ref, "last", "12345678")
		ask.WindowTokens = tokens
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, begun.History, want, "%d tokens", tokens)
		require.EqualValues(t, 9, begun.History[want-1].Sequence)
		fixture.ReleaseTurn(t, store, ref, begun.Turn)
	}
}

// Req: LP-26
func windowBeginsOutsideToolRounds(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "look it up")
	c := fixture.NewCommit(ref, turn, "it is so", session.OutcomeCompleted)
	c.Messages = append(fixture.ToolRound(2), c.Messages...) // 2, 3 and 4; the answer is 5
	fixture.CommitStep(t, store, c)
	for window, first := range map[int]int64{1: 6, 2: 5, 3: 5, 4: 5, 5: 2, 6: 1} {
		ask := fixture.NewBegin(ref, "t2", "thanks")
		ask.Window = window
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Equal(t, first, begun.History[0].Sequence, "window of %d", window)
		fixture.ReleaseTurn(t, store, ref, begun.Turn)
	}
}

func windowBeginsWithTheSummary(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for i := range 3 {
		fixture.RunTurn(t, store, ref, fmt.Sprintf("t%d", i), "question", "answer")
	}
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 2, Summary: "They talked."})
	summary := conversation.Message{Sequence: 4, Role: conversation.RoleSummary, Text: "They talked."}
	for window, want := range map[int]int{3: 3, 4: 4, 100: 4} {
		ask := fixture.NewBegin(ref, "last", "more")
		ask.Window = window
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, begun.History, want)
		if want == 4 {
			fixture.RequireEqual(t, summary, begun.History[0])
		} else {
			require.EqualValues(t, 5, begun.History[0].Sequence)
		}
		fixture.ReleaseTurn(t, store, ref, begun.Turn)
	}
}

func windowIsTheSameAfterATakeover(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t0", "before", "yes")
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.Window = 2
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, first.Turn, "one", session.OutcomeOpen))
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Greater(t, again.Turn.Epoch, first.Turn.Epoch)
	fixture.RequireEqual(t, first.History, again.History)
}
