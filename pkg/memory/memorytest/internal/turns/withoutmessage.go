package turns

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func withoutMessageTests() fixture.Tests {
	return fixture.Tests{
		"WithoutMessage_AppendsNoMessage":                withoutMessageAppendsNoMessage,
		"WithoutMessage_WorksInAnEmptySession":           withoutMessageWorksInAnEmptySession,
		"WithoutMessage_TurnCanBeTakenOver":              withoutMessageTurnCanBeTakenOver,
		"WithoutMessage_EvictedTurnKeepsItsPartialReply": withoutMessageEvictedTurnKeepsItsPartialReply,
		"WithoutMessage_WorksInAFullSession":             withoutMessageWorksInAFullSession,
		"WithoutMessage_WindowKeepsTheLastToolRound":     withoutMessageWindowKeepsTheLastToolRound,
	}
}

// Req: LP-8
func withoutMessageAppendsNoMessage(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	ask := fixture.NewBeginWithoutMessage(ref, "t2")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, memory.BeginResult{
		Status: memory.StatusBegun, Messages: 2,
		Turn: session.Turn{ID: "t2", Trace: ask.TraceID, Number: 2, Epoch: begun.Turn.Epoch, Attempt: 1, Sequence: 2},
		History: []conversation.Message{
			{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1},
			{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "hi", Turn: 1},
		},
	}, begun)
	before := fixture.GetSession(t, store, ref)
	require.EqualValues(t, 2, before.Size.Messages)
	require.EqualValues(t, len("hello")+len("hi"), before.Size.Bytes)
	require.Equal(t, session.Busy, before.State)

	require.EqualValues(t, 3, fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "and more", session.OutcomeCompleted)))
	after := fixture.LoadHistory(t, store, ref)
	require.Len(t, after, 3)
	require.Equal(t, 2, after[2].Turn)
	require.Equal(t, 2, fixture.GetSession(t, store, ref).Turns)
}

func withoutMessageWorksInAnEmptySession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	begun, err := store.BeginTurn(t.Context(), fixture.NewBeginWithoutMessage(ref, "t1"))
	require.NoError(t, err)
	require.Empty(t, begun.History)
	require.Equal(t, 1, begun.Turn.Number)
	require.Zero(t, begun.Turn.Sequence)
	require.EqualValues(t, 1, fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "welcome", session.OutcomeCompleted)))
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

func withoutMessageTurnCanBeTakenOver(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	ask := fixture.NewBeginWithoutMessage(ref, "t2")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, first.Turn, "one", session.OutcomeOpen))
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, 2, again.Turn.Attempt)
	fixture.RequireEqual(t, first.History, again.History)
	require.EqualValues(t, 3, again.Turn.Sequence)
}

func withoutMessageEvictedTurnKeepsItsPartialReply(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, fixture.ModelRounds(1)...)
	fixture.ReleaseTurn(t, store, ref, turn)
	begun, err := store.BeginTurn(t.Context(), fixture.NewBeginWithoutMessage(ref, "t2"))
	require.NoError(t, err)
	require.Equal(t, 2, begun.Turn.Number)
	require.Len(t, begun.History, 2)
	require.True(t, begun.History[1].Partial)
	require.EqualValues(t, 2, begun.Turn.Sequence)
	require.Equal(t, session.OutcomeFailed, fixture.RepeatBeginTurn(t, store, ref).Outcome)
}

// withoutMessageWorksInAFullSession checks that a turn without a message begins in a full session, because it
// appends nothing.
func withoutMessageWorksInAFullSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for i := range fixture.MaxMessages / 2 {
		fixture.RunTurn(t, store, ref, fmt.Sprintf("t%d", i), "q", "a")
	}
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "full", "one more"))
	fixture.RequireMode(t, err, failure.SessionFull)
	begun, err := store.BeginTurn(t.Context(), fixture.NewBeginWithoutMessage(ref, "last"))
	require.NoError(t, err)
	_, err = store.CommitStep(t.Context(), fixture.NewCommit(ref, begun.Turn, "a", session.OutcomeCompleted))
	fixture.RequireMode(t, err, failure.SessionFull)
	silent := fixture.NewCommit(ref, begun.Turn, "a", session.OutcomeCompleted)
	silent.Messages = nil
	fixture.CommitStep(t, store, silent)
}

// withoutMessageWindowKeepsTheLastToolRound begins a turn after tool results. The window includes the calls of
// these results.
func withoutMessageWindowKeepsTheLastToolRound(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "look it up")
	c := fixture.NewCommit(ref, turn, "", session.OutcomeCompleted)
	c.Messages = fixture.ToolRound(3) // 2 to 5
	fixture.CommitStep(t, store, c)
	for window, first := range map[int]int64{1: 2, 2: 2, 3: 2, 4: 2, 5: 1, 9: 1} {
		ask := fixture.NewBeginWithoutMessage(ref, fmt.Sprintf("w%d", window))
		ask.Window = window
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Equal(t, first, begun.History[0].Sequence, "window of %d", window)
		require.EqualValues(t, 5, begun.History[len(begun.History)-1].Sequence)
		require.Equal(t, 1, begun.Turn.Attempt)
		_, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, begun.Turn, session.OutcomeCancelled))
		require.NoError(t, err)
	}
}
