package memorytest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func goOnTests() tests {
	return tests{
		"GoOn_AppendsNoMessage":             goOnAppendsNoMessage,
		"GoOn_InASessionWithoutMessages":    goOnInASessionWithoutMessages,
		"GoOn_IsTakenOverAsItBegan":         goOnIsTakenOverAsItBegan,
		"GoOn_MakesRoomAndKeepsWhatWasSaid": goOnMakesRoomAndKeepsWhatWasSaid,
		"GoOn_IsForFullSessionsToo":         goOnIsForFullSessionsToo,
		"GoOn_KeepsTheRoundItComesBehind":   goOnKeepsTheRoundItComesBehind,
	}
}

// goingOn is a Begin of a turn without a message.
func goingOn(ref session.Ref, turnID string) memory.Begin {
	b := asking(ref, turnID, "")
	b.Message = conversation.Message{}
	return b
}

// Req: LP-8
func goOnAppendsNoMessage(t *testing.T, store memory.Store) {
	ref := fresh()
	converse(t, store, ref, "t1", "hello", "hi")
	ask := goingOn(ref, "t2")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	requireSame(t, memory.Begun{
		Found: memory.FoundBegun,
		Turn:  session.Turn{ID: "t2", Trace: ask.TraceID, Number: 2, Epoch: begun.Turn.Epoch, Attempt: 1, Sequence: 2},
		History: []conversation.Message{
			{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1},
			{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "hi", Turn: 1},
		},
	}, begun)
	before := get(t, store, ref)
	require.EqualValues(t, 2, before.Messages)
	require.EqualValues(t, len("hello")+len("hi"), before.Bytes)
	require.Equal(t, session.Busy, before.State)

	require.EqualValues(t, 3, commit(t, store, answering(ref, begun.Turn, "and more", session.OutcomeCompleted)))
	after := history(t, store, ref)
	require.Len(t, after, 3)
	require.Equal(t, 2, after[2].Turn)
	require.Equal(t, 2, get(t, store, ref).Turns)
}

func goOnInASessionWithoutMessages(t *testing.T, store memory.Store) {
	ref := fresh()
	begun, err := store.BeginTurn(t.Context(), goingOn(ref, "t1"))
	require.NoError(t, err)
	require.Empty(t, begun.History)
	require.Equal(t, 1, begun.Turn.Number)
	require.Zero(t, begun.Turn.Sequence)
	require.EqualValues(t, 1, commit(t, store, answering(ref, begun.Turn, "welcome", session.OutcomeCompleted)))
	require.Len(t, history(t, store, ref), 1)
}

func goOnIsTakenOverAsItBegan(t *testing.T, store memory.Store) {
	ref := fresh()
	converse(t, store, ref, "t1", "hello", "hi")
	ask := goingOn(ref, "t2")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	commit(t, store, answering(ref, first.Turn, "one", session.OutcomeOpen))
	release(t, store, ref, first.Turn)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, 2, again.Turn.Attempt)
	requireSame(t, first.History, again.History)
	require.EqualValues(t, 3, again.Turn.Sequence)
}

func goOnMakesRoomAndKeepsWhatWasSaid(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	record(t, store, holding(ref, turn), 1, rounds(1)...)
	release(t, store, ref, turn)
	begun, err := store.BeginTurn(t.Context(), goingOn(ref, "t2"))
	require.NoError(t, err)
	require.Equal(t, 2, begun.Turn.Number)
	require.Len(t, begun.History, 2)
	require.True(t, begun.History[1].Partial)
	require.EqualValues(t, 2, begun.Turn.Sequence)
	require.Equal(t, session.OutcomeFailed, known(t, store, ref).Outcome)
}

// goOnIsForFullSessionsToo says nothing that would need room.
func goOnIsForFullSessionsToo(t *testing.T, store memory.Store) {
	ref := fresh()
	for i := range MaxMessages / 2 {
		converse(t, store, ref, fmt.Sprintf("t%d", i), "q", "a")
	}
	_, err := store.BeginTurn(t.Context(), asking(ref, "full", "one more"))
	requireMode(t, err, failure.SessionFull)
	begun, err := store.BeginTurn(t.Context(), goingOn(ref, "last"))
	require.NoError(t, err)
	_, err = store.CommitStep(t.Context(), answering(ref, begun.Turn, "a", session.OutcomeCompleted))
	requireMode(t, err, failure.SessionFull)
	silent := answering(ref, begun.Turn, "a", session.OutcomeCompleted)
	silent.Messages = nil
	commit(t, store, silent)
}

// goOnKeepsTheRoundItComesBehind begins behind results, which belong to their call.
func goOnKeepsTheRoundItComesBehind(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "look it up")
	c := answering(ref, turn, "", session.OutcomeCompleted)
	c.Messages = roundOf(3) // 2 to 5
	commit(t, store, c)
	for window, first := range map[int]int64{1: 2, 2: 2, 3: 2, 4: 2, 5: 1, 9: 1} {
		ask := goingOn(ref, fmt.Sprintf("w%d", window))
		ask.Window = window
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Equal(t, first, begun.History[0].Sequence, "window of %d", window)
		require.EqualValues(t, 5, begun.History[len(begun.History)-1].Sequence)
		require.Equal(t, 1, begun.Turn.Attempt)
		_, err = store.FailTurn(t.Context(), failing(ref, begun.Turn, session.OutcomeCancelled))
		require.NoError(t, err)
	}
}
