package turns

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func lookupTests() fixture.Tests {
	return fixture.Tests{
		"Begin_EvictsOnlyIfTheMessageFits":          beginEvictsOnlyIfTheMessageFits,
		"Begin_RejectsAMessageThatExceedsTheLimits": beginRejectsAMessageThatExceedsTheLimits,
		"Begin_ClosedSessionStillReturnsKnownTurns": beginClosedSessionStillReturnsKnownTurns,
		"Begin_LookupByTheHolderGetsTheSameAnswer":  beginLookupByTheHolderGetsTheSameAnswer,
		"Begin_LookupDoesNotTakeOver":               beginLookupDoesNotTakeOver,
		"Begin_LookupDoesNotEvict":                  beginLookupDoesNotEvict,
	}
}

func beginEvictsOnlyIfTheMessageFits(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.ReleaseTurn(t, store, ref, turn)
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t2", strings.Repeat("a", fixture.MaxBytes)))
	fixture.RequireMode(t, err, failure.SessionFull)
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).OpenTurn)
	look := fixture.NewBegin(ref, "t1", "hello")
	look.LookupOnly = true
	found, err := store.BeginTurn(t.Context(), look)
	require.NoError(t, err)
	fixture.RequireEqual(t, turn, found.Turn)
}

func beginRejectsAMessageThatExceedsTheLimits(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", strings.Repeat("a", fixture.MaxBytes+1)))
	fixture.RequireMode(t, err, failure.SessionFull)
	_, err = store.GetSession(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound)
}

func beginClosedSessionStillReturnsKnownTurns(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Close})
	require.Equal(t, session.OutcomeCompleted, fixture.RepeatBeginTurn(t, store, ref).Outcome)
	ask := fixture.NewBegin(ref, "t2", "more")
	_, err := store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.SessionClosed)
	ask.LookupOnly = true
	_, err = store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound)
}

func beginLookupByTheHolderGetsTheSameAnswer(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	ask.LookupOnly = true
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, first, again)
}

func beginLookupDoesNotTakeOver(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	ask.LookupOnly = true
	found, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
	require.Zero(t, found.LeaseLeft)
	fixture.RequireEqual(t, first.Turn, found.Turn)
}

func beginLookupDoesNotEvict(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.ReleaseTurn(t, store, ref, turn)
	ask := fixture.NewBegin(ref, "t2", "and me")
	ask.LookupOnly = true
	_, err := store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound)
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).OpenTurn)
}
