package memorytest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func holdTests() tests {
	return tests{
		"Renew_LetsTheLeaseRunAnew":         renewLetsTheLeaseRunAnew,
		"Release_MakesTheTurnFree":          releaseMakesTheTurnFree,
		"Release_MakesRoomForAnotherTurn":   releaseMakesRoomForAnotherTurn,
		"Release_LeavesTheTurnToASuccessor": releaseLeavesTheTurnToASuccessor,
		"Release_FullSessionKeepsNoPartial": releaseFullSessionKeepsNoPartial,
		"Hold_EndsWithTheTurn":              holdEndsWithTheTurn,
		"Hold_RefusesUnknownTurns":          holdRefusesUnknownTurns,
		"LostEpoch_TakesTheTurnOver":        lostEpochTakesTheTurnOver,
		"LostEpoch_IsForTheHolder":          lostEpochIsForTheHolder,
		"LostEpoch_KnownOnlyWritesNothing":  lostEpochKnownOnlyWritesNothing,
	}
}

func holding(ref session.Ref, turn session.Turn) memory.Hold {
	return memory.Hold{Ref: ref, TurnID: turn.ID, Epoch: turn.Epoch}
}

func release(t *testing.T, store memory.Store, ref session.Ref, turn session.Turn) {
	t.Helper()
	require.NoError(t, store.ReleaseTurn(t.Context(), holding(ref, turn)))
}

// takeOver releases the turn and has somebody else begin it.
func takeOver(t *testing.T, store memory.Store, ref session.Ref, turn session.Turn) session.Turn {
	t.Helper()
	release(t, store, ref, turn)
	return begin(t, store, ref, turn.ID, "again")
}

func renewLetsTheLeaseRunAnew(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	ask.Lease = memory.MinLease
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.NoError(t, store.RenewTurn(t.Context(), holding(ref, begun.Turn), memory.MaxLease))
	found, err := store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, found.Found)
	require.Greater(t, found.LeaseLeft, memory.MaxLease/2)

	// A lease may be made shorter too, and one that ended may run again.
	require.NoError(t, store.RenewTurn(t.Context(), holding(ref, begun.Turn), memory.MinLease))
	release(t, store, ref, begun.Turn)
	require.NoError(t, store.RenewTurn(t.Context(), holding(ref, begun.Turn), memory.MaxLease))
	found, err = store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, found.Found)
}

func releaseMakesTheTurnFree(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	for range 2 {
		release(t, store, ref, turn)
	}
	require.Equal(t, "t1", get(t, store, ref).OpenTurn, "it stays open")
	next := begin(t, store, ref, "t1", "hello")
	require.Greater(t, next.Epoch, turn.Epoch)
	require.Equal(t, 2, next.Attempt)
	require.Equal(t, turn.Trace, next.Trace)
	requireFenced(t, store, ref, turn)
	commit(t, store, answering(ref, next, "hi", session.OutcomeCompleted))
	require.Len(t, history(t, store, ref), 2)
}

// releaseMakesRoomForAnotherTurn keeps what the turn had said, as if it had been failed.
// Req: LP-17
func releaseMakesRoomForAnotherTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	require.NoError(t, store.Record(t.Context(), holding(ref, turn), 1, rounds(1)))
	release(t, store, ref, turn)
	next := begin(t, store, ref, "t2", "and me")
	require.Equal(t, 2, next.Number)
	require.Greater(t, next.Epoch, turn.Epoch)
	evicted := known(t, store, ref)
	require.Equal(t, session.OutcomeFailed, evicted.Outcome)
	require.Equal(t, failure.SystemTimeout, evicted.Failure.Mode)
	require.EqualValues(t, 2, evicted.Sequence)
	require.EqualValues(t, 3, next.Sequence)
	said := history(t, store, ref)
	require.Len(t, said, 3)
	requireSame(t, conversation.Message{
		Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Turn: 1, Partial: true, Text: "looking at page 0",
	}, said[1])
	require.EqualValues(t, 3, get(t, store, ref).Messages)
	requireFenced(t, store, ref, session.Turn{ID: "t2", Epoch: turn.Epoch, Sequence: 3})
}

// releaseLeavesTheTurnToASuccessor keeps another turn waiting that leaves the first one time.
func releaseLeavesTheTurnToASuccessor(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	release(t, store, ref, turn)
	other := asking(ref, "t2", "and me")
	other.Reserve = time.Minute
	_, err := store.BeginTurn(t.Context(), other)
	requireMode(t, err, failure.SessionBusy, "turn_id", "t1")

	ask := asking(ref, "t1", "hello")
	ask.Reserve = time.Minute
	taken, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.FoundBegun, taken.Found, "that is for others")
	release(t, store, ref, taken.Turn)
	other.Reserve = 0
	begun, err := store.BeginTurn(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, memory.FoundBegun, begun.Found)
}

// releaseFullSessionKeepsNoPartial has room for the next turn's message alone.
func releaseFullSessionKeepsNoPartial(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := answering(ref, turn, "a", session.OutcomeOpen)
	for range MaxMessages - 3 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	commit(t, store, c)
	record(t, store, holding(ref, turn), 2, rounds(1)...)
	release(t, store, ref, turn)
	require.EqualValues(t, MaxMessages, begin(t, store, ref, "t2", "and me").Sequence)
	require.EqualValues(t, MaxMessages, get(t, store, ref).Messages)
	for _, m := range history(t, store, ref) {
		require.False(t, m.Partial)
	}
}

// A turn that is closed is nobody's.
func holdEndsWithTheTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := converse(t, store, ref, "t1", "hello", "hi")
	before := visible(t, store, ref)
	for name, call := range holderCalls(store, holding(ref, turn)) {
		requireMode(t, call(t), failure.TurnNotOpen, "turn_id", "t1")
		require.Equal(t, before, visible(t, store, ref), name)
	}
}

func holdRefusesUnknownTurns(t *testing.T, store memory.Store) {
	ref := fresh()
	for _, call := range holderCalls(store, memory.Hold{Ref: ref, TurnID: "t1", Epoch: 1}) {
		requireMode(t, call(t), failure.NotFound, "session_id", ref.Session)
	}
	turn := begin(t, store, ref, "t2", "hello")
	for _, call := range holderCalls(store, memory.Hold{Ref: ref, TurnID: "t1", Epoch: turn.Epoch}) {
		requireMode(t, call(t), failure.NotFound, "session_id", ref.Session, "turn_id", "t1")
	}
}

// lostEpochTakesTheTurnOver is what an orchestrator does whose worker is gone. Its call
// again, after a lost reply, does not fence the worker that it sent meanwhile.
func lostEpochTakesTheTurnOver(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	step := answering(ref, first.Turn, "one", session.OutcomeOpen)
	commit(t, store, step)

	ask.LostEpoch = first.Turn.Epoch
	second, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.FoundBegun, second.Found)
	require.Greater(t, second.Turn.Epoch, first.Turn.Epoch)
	require.Equal(t, 2, second.Turn.Attempt)
	require.Len(t, second.Turn.Steps, 1)
	requireSame(t, first.History, second.History)
	requireFenced(t, store, ref, first.Turn)

	for range 2 {
		again, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		requireSame(t, second, again)
	}
	ask.LostEpoch = second.Turn.Epoch
	third, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Greater(t, third.Turn.Epoch, second.Turn.Epoch)
	require.Equal(t, 3, third.Turn.Attempt)
}

func lostEpochIsForTheHolder(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	other := asking(ref, "t1", "hello")
	other.LostEpoch = turn.Epoch
	found, err := store.BeginTurn(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, found.Found)
	requireSame(t, turn, found.Turn)
}

func lostEpochKnownOnlyWritesNothing(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	ask.KnownOnly, ask.LostEpoch = true, first.Turn.Epoch
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, first.Turn.Epoch, again.Turn.Epoch)
}
