package memorytest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func failTests() tests {
	return tests{
		"Fail_ClosesTheTurn":               failClosesTheTurn,
		"Fail_CancelledLeavesSessionReady": failCancelledLeavesSessionReady,
		"Fail_AfterCommitReturnsTheTurn":   failAfterCommitReturnsTheTurn,
		"Fail_KeepsWhatWasSaid":            failKeepsWhatWasSaid,
		"Fail_SaysNothingForTools":         failSaysNothingForTools,
		"Fail_ClosesATurnOfAFullSession":   failClosesATurnOfAFullSession,
		"Fail_RefusesUnknownTurn":          failRefusesUnknownTurn,
	}
}

func failing(ref session.Ref, turn session.Turn, outcome session.Outcome) memory.Fail {
	return memory.Fail{
		Ref: ref, TurnID: turn.ID, Epoch: turn.Epoch, Outcome: outcome,
		Failure: failure.New(failure.NoWorker, "orchestrator.route", "no ready instance").With("agent", "echo"),
	}
}

// Req: C-2
func failClosesTheTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	f := failing(ref, turn, session.OutcomeFailed)
	failed, err := store.FailTurn(t.Context(), f)
	require.NoError(t, err)
	want := turn
	want.Outcome, want.Failure = session.OutcomeFailed, f.Failure
	requireSame(t, want, failed)
	s := get(t, store, ref)
	require.Equal(t, session.Failed, s.State)
	require.Empty(t, s.OpenTurn)

	// Failing it again, even for another reason, returns how it ended.
	again, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeCancelled))
	require.NoError(t, err)
	requireSame(t, want, again)
	requireSame(t, want, known(t, store, ref))

	// The session takes the next turn; the question of the failed one stays.
	converse(t, store, ref, "t2", "still there?", "yes")
	require.Equal(t, session.Ready, get(t, store, ref).State)
	require.Len(t, history(t, store, ref), 3)
}

func failCancelledLeavesSessionReady(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	closed, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeCancelled))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCancelled, closed.Outcome)
	require.Equal(t, session.Ready, get(t, store, ref).State)
	_, err = store.CommitStep(t.Context(), answering(ref, turn, "too late", session.OutcomeCompleted))
	requireMode(t, err, failure.TurnNotOpen, "outcome", string(session.OutcomeCancelled))
}

func failAfterCommitReturnsTheTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := converse(t, store, ref, "t1", "hello", "hi")
	closed, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, closed.Outcome)
	require.Nil(t, closed.Failure)
	require.Equal(t, "hi", closed.Steps[0].Text)
	require.Equal(t, session.Ready, get(t, store, ref).State)
}

func failRefusesUnknownTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	_, err := store.FailTurn(t.Context(), failing(ref, session.Turn{ID: "t1", Epoch: 1}, session.OutcomeFailed))
	requireMode(t, err, failure.NotFound, "turn_id", "t1")
}

// failKeepsWhatWasSaid tells the user what the agent said before it broke off.
// Req: LP-17
func failKeepsWhatWasSaid(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	h := holding(ref, turn)
	record(t, store, h, 1, rounds(1)...)
	commit(t, store, answering(ref, turn, "one", session.OutcomeOpen))
	record(t, store, h, 2, rounds(2)...)
	failed, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.EqualValues(t, 3, failed.Sequence)

	said := history(t, store, ref)
	requireSame(t, conversation.Message{
		Sequence: 3, Role: conversation.RoleAssistant, Author: "echo", Turn: 1, Partial: true,
		Text: "looking at page 0\n\nlooking at page 1",
	}, said[2])
	s := get(t, store, ref)
	require.EqualValues(t, 3, s.Messages)
	require.EqualValues(t, 3, s.Sequence)
	requireSame(t, failed, known(t, store, ref))

	// Failing it again says nothing more, and the next turn sees it.
	_, err = store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	begun, err := store.BeginTurn(t.Context(), asking(ref, "t2", "go on"))
	require.NoError(t, err)
	require.Len(t, begun.History, 4)
	require.True(t, begun.History[2].Partial)
}

func failSaysNothingForTools(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	record(t, store, holding(ref, turn), 1, rounds(1)[1:]...)
	failed, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeCancelled))
	require.NoError(t, err)
	require.EqualValues(t, 1, failed.Sequence)
	require.Len(t, history(t, store, ref), 1)
}

// failClosesATurnOfAFullSession leaves out what was said rather than keep the turn open.
func failClosesATurnOfAFullSession(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := answering(ref, turn, "a", session.OutcomeOpen)
	for range MaxMessages - 2 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	commit(t, store, c)
	record(t, store, holding(ref, turn), 2, rounds(1)...)
	failed, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeFailed, failed.Outcome)
	require.EqualValues(t, MaxMessages, get(t, store, ref).Messages)
}
