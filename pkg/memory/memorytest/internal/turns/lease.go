package turns

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func leaseTests() fixture.Tests {
	return fixture.Tests{
		"Renew_ExtendsTheLease":                      renewExtendsTheLease,
		"Release_EndsTheLease":                       releaseEndsTheLease,
		"Release_MakesRoomForAnotherTurn":            releaseMakesRoomForAnotherTurn,
		"Release_ReservesTheTurnForASuccessor":       releaseReservesTheTurnForASuccessor,
		"Release_DropsThePartialReplyOfAFullSession": releaseDropsThePartialReplyOfAFullSession,
		"Lease_EndsWithTheTurn":                      leaseEndsWithTheTurn,
		"Lease_RejectsUnknownTurns":                  leaseRejectsUnknownTurns,
		"LostEpoch_TakesTheTurnOver":                 lostEpochTakesTheTurnOver,
		"LostEpoch_IsIgnoredForOtherCallers":         lostEpochIsIgnoredForOtherCallers,
		"LostEpoch_LookupWritesNothing":              lostEpochLookupWritesNothing,
	}
}

func renewExtendsTheLease(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.LeaseTTL = memory.MinLeaseTTL
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.NoError(t, store.RenewTurn(t.Context(), fixture.LeaseOf(ref, begun.Turn), memory.MaxLeaseTTL))
	found, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
	require.Greater(t, found.LeaseLeft, memory.MaxLeaseTTL/2)

	// RenewTurn may also shorten a lease, and may renew an expired lease.
	require.NoError(t, store.RenewTurn(t.Context(), fixture.LeaseOf(ref, begun.Turn), memory.MinLeaseTTL))
	fixture.ReleaseTurn(t, store, ref, begun.Turn)
	require.NoError(t, store.RenewTurn(t.Context(), fixture.LeaseOf(ref, begun.Turn), memory.MaxLeaseTTL))
	found, err = store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
}

func releaseEndsTheLease(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	for range 2 {
		fixture.ReleaseTurn(t, store, ref, turn)
	}
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).OpenTurn, "it stays open")
	next := fixture.BeginTurn(t, store, ref, "t1", "hello")
	require.Greater(t, next.Epoch, turn.Epoch)
	require.Equal(t, 2, next.Attempt)
	require.Equal(t, turn.Trace, next.Trace)
	fixture.RequireFenced(t, store, ref, turn)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, next, "hi", session.OutcomeCompleted))
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
}

// releaseMakesRoomForAnotherTurn checks that another turn evicts the released one and keeps its partial reply, as
// if the turn had failed.
// Req: LP-17
func releaseMakesRoomForAnotherTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	require.NoError(t, store.Record(t.Context(), fixture.LeaseOf(ref, turn), 1, fixture.ModelRounds(1)))
	fixture.ReleaseTurn(t, store, ref, turn)
	next := fixture.BeginTurn(t, store, ref, "t2", "and me")
	require.Equal(t, 2, next.Number)
	require.Greater(t, next.Epoch, turn.Epoch)
	evicted := fixture.RepeatBeginTurn(t, store, ref)
	require.Equal(t, session.OutcomeFailed, evicted.Outcome)
	require.Equal(t, failure.SystemTimeout, evicted.Failure.Mode)
	require.EqualValues(t, 2, evicted.Sequence)
	require.EqualValues(t, 3, next.Sequence)
	said := fixture.LoadHistory(t, store, ref)
	require.Len(t, said, 3)
	fixture.RequireEqual(t, conversation.Message{
		Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Turn: 1, Partial: true, Text: "looking at page 0",
	}, said[1])
	require.EqualValues(t, 3, fixture.GetSession(t, store, ref).Size.Messages)
	fixture.RequireFenced(t, store, ref, session.Turn{ID: "t2", Epoch: turn.Epoch, Sequence: 3})
}

// releaseReservesTheTurnForASuccessor checks that another turn is rejected during the takeover grace of the
// released turn.
func releaseReservesTheTurnForASuccessor(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.ReleaseTurn(t, store, ref, turn)
	other := fixture.NewBegin(ref, "t2", "and me")
	other.TakeoverGrace = time.Minute
	_, err := store.BeginTurn(t.Context(), other)
	fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", "t1")

	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.TakeoverGrace = time.Minute
	taken, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, taken.Status, "that is for others")
	fixture.ReleaseTurn(t, store, ref, taken.Turn)
	other.TakeoverGrace = 0
	begun, err := store.BeginTurn(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, begun.Status)
}

// releaseDropsThePartialReplyOfAFullSession leaves room for only the message of the next turn, so that the partial
// reply is dropped.
func releaseDropsThePartialReplyOfAFullSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := fixture.NewCommit(ref, turn, "a", session.OutcomeOpen)
	for range fixture.MaxMessages - 3 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	fixture.CommitStep(t, store, c)
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 2, fixture.ModelRounds(1)...)
	fixture.ReleaseTurn(t, store, ref, turn)
	require.EqualValues(t, fixture.MaxMessages, fixture.BeginTurn(t, store, ref, "t2", "and me").Sequence)
	require.EqualValues(t, fixture.MaxMessages, fixture.GetSession(t, store, ref).Size.Messages)
	for _, m := range fixture.LoadHistory(t, store, ref) {
		require.False(t, m.Partial)
	}
}

// A lease is no longer valid once its turn is closed.
func leaseEndsWithTheTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	before := fixture.ReadSession(t, store, ref)
	for name, call := range fixture.TurnCalls(store, fixture.LeaseOf(ref, turn)) {
		fixture.RequireMode(t, call(t), failure.TurnNotOpen, "turn_id", "t1")
		require.Equal(t, before, fixture.ReadSession(t, store, ref), name)
	}
}

func leaseRejectsUnknownTurns(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for _, call := range fixture.TurnCalls(store, memory.Lease{Ref: ref, TurnID: "t1", Epoch: 1}) {
		fixture.RequireMode(t, call(t), failure.NotFound, "session_id", ref.Session)
	}
	turn := fixture.BeginTurn(t, store, ref, "t2", "hello")
	for _, call := range fixture.TurnCalls(store, memory.Lease{Ref: ref, TurnID: "t1", Epoch: turn.Epoch}) {
		fixture.RequireMode(t, call(t), failure.NotFound, "session_id", ref.Session, "turn_id", "t1")
	}
}

// lostEpochTakesTheTurnOver begins the turn again like an orchestrator that has lost its worker. If the reply is
// lost, the repeated call must not fence the next worker.
func lostEpochTakesTheTurnOver(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	step := fixture.NewCommit(ref, first.Turn, "one", session.OutcomeOpen)
	fixture.CommitStep(t, store, step)

	ask.LostEpoch = first.Turn.Epoch
	second, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, second.Status)
	require.Greater(t, second.Turn.Epoch, first.Turn.Epoch)
	require.Equal(t, 2, second.Turn.Attempt)
	require.Len(t, second.Turn.Steps, 1)
	fixture.RequireEqual(t, first.History, second.History)
	fixture.RequireFenced(t, store, ref, first.Turn)

	for range 2 {
		again, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		fixture.RequireEqual(t, second, again)
	}
	ask.LostEpoch = second.Turn.Epoch
	third, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Greater(t, third.Turn.Epoch, second.Turn.Epoch)
	require.Equal(t, 3, third.Turn.Attempt)
}

func lostEpochIsIgnoredForOtherCallers(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	other := fixture.NewBegin(ref, "t1", "hello")
	other.LostEpoch = turn.Epoch
	found, err := store.BeginTurn(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
	fixture.RequireEqual(t, turn, found.Turn)
}

func lostEpochLookupWritesNothing(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	ask.LookupOnly, ask.LostEpoch = true, first.Turn.Epoch
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, first.Turn.Epoch, again.Turn.Epoch)
}
