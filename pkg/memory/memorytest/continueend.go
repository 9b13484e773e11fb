package memorytest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// continueEndTests are about turns in the place of others at the edges: how they end, and what
// is there no more when they begin.
func continueEndTests() tests {
	return tests{
		"Continue_FailKeepsWhatWasSaid": continueFailKeepsWhatWasSaid,
		"Continue_MakesRoomAsAnyTurn":   continueMakesRoomAsAnyTurn,
		"Continue_WithoutAJournal":      continueWithoutAJournal,
		"Continue_AfterACompaction":     continueAfterACompaction,
		"Continue_IsForFullSessionsToo": continueIsForFullSessionsToo,
	}
}

func continueFailKeepsWhatWasSaid(t *testing.T, store memory.Store) {
	ref, turn := waiting(t, store)
	next := goOn(t, store, ref, turn, "t2")
	failed, err := store.FailTurn(t.Context(), failing(ref, next, session.OutcomeFailed))
	require.NoError(t, err)
	require.EqualValues(t, 6, failed.Sequence)
	require.Equal(t, "t1", failed.Continues)
	requireSame(t, answers(), failed.Answers)
	told := history(t, store, ref)
	requireSame(t, conversation.Message{
		Sequence: 6, Role: conversation.RoleAssistant, Author: "echo", Turn: 3, Partial: true,
		Text: "looking at page 0\n\nlooking at page 1",
	}, told[5])
	s := get(t, store, ref)
	require.Equal(t, session.Failed, s.State)
	require.Empty(t, s.WaitingTurn)
	converse(t, store, ref, "t3", "still there?", "yes")
	require.Len(t, history(t, store, ref), 8)
}

// continueMakesRoomAsAnyTurn is a turn that goes on, is left, and is in the way of another.
func continueMakesRoomAsAnyTurn(t *testing.T, store memory.Store) {
	ref, turn := waiting(t, store)
	next := goOn(t, store, ref, turn, "t2")
	release(t, store, ref, next)
	last := begin(t, store, ref, "t3", "and me")
	require.EqualValues(t, 7, last.Sequence)
	require.Empty(t, last.Steps)
	told := history(t, store, ref)
	require.True(t, told[5].Partial)
	require.Equal(t, 3, told[5].Turn)
	gone, err := store.BeginTurn(t.Context(), continuing(ref, turn, "t2"))
	require.NoError(t, err)
	require.Equal(t, memory.FoundClosed, gone.Found)
	require.Equal(t, session.OutcomeFailed, gone.Turn.Outcome)
	require.Len(t, gone.Turn.Steps, 1)
	requireSame(t, answers(), gone.Turn.Answers)
	require.Empty(t, journal(t, store, holding(ref, last), 2))
}

// continueWithoutAJournal is a step that had done nothing which a successor must know.
func continueWithoutAJournal(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "read on")
	commit(t, store, stopping(ref, turn, 1))
	next := goOn(t, store, ref, turn, "t2")
	require.Empty(t, next.Steps)
	require.Equal(t, 2, next.Attempt)
	h := holding(ref, next)
	require.Empty(t, journal(t, store, h, 1))
	record(t, store, h, 1, rounds(1)...)
	requireSame(t, rounds(1), journal(t, store, h, 1))
	commit(t, store, stopping(ref, next, 1))
	requireSame(t, rounds(1), journal(t, store, holding(ref, goOn(t, store, ref, next, "t3")), 1))
}

// continueAfterACompaction has the summary for what is not there any more.
func continueAfterACompaction(t *testing.T, store memory.Store) {
	for keep, want := range map[int][]string{
		3: {"2 They talked.", "3 read on"},
		1: {"4 They talked."},
	} {
		ref, turn := waiting(t, store)
		compact(t, store, memory.Compact{Ref: ref, Keep: keep, Summary: "They talked."})
		ask := continuing(ref, turn, "t2")
		for range 2 {
			begun, err := store.BeginTurn(t.Context(), ask)
			require.NoError(t, err)
			require.Equal(t, want, said(begun.History))
			require.EqualValues(t, 5, begun.Turn.Sequence)
		}
	}
}

func continueIsForFullSessionsToo(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "read on")
	record(t, store, holding(ref, turn), 1, stopped()...)
	c := stopping(ref, turn, 1)
	for len(c.Messages) < MaxMessages-1 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	commit(t, store, c)
	_, err := store.BeginTurn(t.Context(), asking(ref, "t2", "never mind"))
	requireMode(t, err, failure.SessionFull)
	require.Equal(t, "t1", get(t, store, ref).WaitingTurn)
	next := goOn(t, store, ref, turn, "t2")
	requireSame(t, stopped(), journal(t, store, holding(ref, next), 1))
	failed, err := store.FailTurn(t.Context(), failing(ref, next, session.OutcomeFailed))
	require.NoError(t, err)
	require.EqualValues(t, MaxMessages, failed.Sequence, "there is no room for what it had said")
}
