package memorytest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func knownTests() tests {
	return tests{
		"Begin_EvictsOnlyWhenThereIsRoom":      beginEvictsOnlyWhenThereIsRoom,
		"Begin_RefusesMoreThanASessionMayHold": beginRefusesMoreThanASessionMayHold,
		"Begin_ClosedSessionAnswersKnownTurns": beginClosedSessionAnswersKnownTurns,
		"Begin_KnownOnlyOfTheHolderIsAsBefore": beginKnownOnlyOfTheHolderIsAsBefore,
		"Begin_KnownOnlyDoesNotTakeOver":       beginKnownOnlyDoesNotTakeOver,
		"Begin_KnownOnlyDoesNotMakeRoom":       beginKnownOnlyDoesNotMakeRoom,
	}
}

func beginEvictsOnlyWhenThereIsRoom(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	release(t, store, ref, turn)
	_, err := store.BeginTurn(t.Context(), asking(ref, "t2", strings.Repeat("a", MaxBytes)))
	requireMode(t, err, failure.SessionFull)
	require.Equal(t, "t1", get(t, store, ref).OpenTurn)
	look := asking(ref, "t1", "hello")
	look.KnownOnly = true
	found, err := store.BeginTurn(t.Context(), look)
	require.NoError(t, err)
	requireSame(t, turn, found.Turn)
}

func beginRefusesMoreThanASessionMayHold(t *testing.T, store memory.Store) {
	ref := fresh()
	_, err := store.BeginTurn(t.Context(), asking(ref, "t1", strings.Repeat("a", MaxBytes+1)))
	requireMode(t, err, failure.SessionFull)
	_, err = store.GetSession(t.Context(), ref)
	requireMode(t, err, failure.NotFound)
}

func beginClosedSessionAnswersKnownTurns(t *testing.T, store memory.Store) {
	ref := fresh()
	converse(t, store, ref, "t1", "hello", "hi")
	update(t, store, memory.Update{Ref: ref, Verb: session.Close})
	require.Equal(t, session.OutcomeCompleted, known(t, store, ref).Outcome)
	ask := asking(ref, "t2", "more")
	_, err := store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.SessionClosed)
	ask.KnownOnly = true
	_, err = store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.NotFound)
}

func beginKnownOnlyOfTheHolderIsAsBefore(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	ask.KnownOnly = true
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	requireSame(t, first, again)
}

func beginKnownOnlyDoesNotTakeOver(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	release(t, store, ref, first.Turn)
	ask.KnownOnly = true
	found, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, found.Found)
	require.Zero(t, found.LeaseLeft)
	requireSame(t, first.Turn, found.Turn)
}

func beginKnownOnlyDoesNotMakeRoom(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	release(t, store, ref, turn)
	ask := asking(ref, "t2", "and me")
	ask.KnownOnly = true
	_, err := store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.NotFound)
	require.Equal(t, "t1", get(t, store, ref).OpenTurn)
}
