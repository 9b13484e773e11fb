package memorytest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func userTests() tests {
	return tests{
		"User_FirstTurnDecides":                 userFirstTurnDecides,
		"User_OfACreatedSession":                userOfACreatedSession,
		"Begin_AnotherUserSeesNothingOfATurn":   beginAnotherUserSeesNothingOfATurn,
		"Begin_KnownOnlyOfAnotherUserFindsNone": beginKnownOnlyOfAnotherUserFindsNone,
	}
}

func userFirstTurnDecides(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	ask.User = "alice@example.com"
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, ask.User, get(t, store, ref).User)
	commit(t, store, answering(ref, begun.Turn, "hi", session.OutcomeCompleted))

	for _, user := range []string{"bob@example.com", ""} {
		next := asking(ref, "t2", "and me")
		next.User = user
		_, err := store.BeginTurn(t.Context(), next)
		requireMode(t, err, failure.NotFound, "session_id", ref.Session)
	}
	next := asking(ref, "t2", "and me")
	next.User = ask.User
	_, err = store.BeginTurn(t.Context(), next)
	require.NoError(t, err)

	// Nobody's session stays nobody's.
	nobodys := fresh()
	converse(t, store, nobodys, "t1", "hello", "hi")
	next.Ref = nobodys
	_, err = store.BeginTurn(t.Context(), next)
	requireMode(t, err, failure.NotFound)
	require.Empty(t, get(t, store, nobodys).User)
}

func userOfACreatedSession(t *testing.T, store memory.Store) {
	alices, open := fresh(), fresh()
	user := unique("alice")
	update(t, store, memory.Update{Ref: alices, Create: true, User: user})
	ask := asking(alices, "t1", "hello")
	ask.User = "bob"
	_, err := store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.NotFound)
	ask.User = user
	_, err = store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)

	// One that was made for nobody takes the user of its first turn, paused or not.
	update(t, store, memory.Update{Ref: open, Create: true, Verb: session.Pause})
	ask.Ref = open
	_, err = store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, user, get(t, store, open).User)
	require.Len(t, list(t, store, user), 2)
}

func beginAnotherUserSeesNothingOfATurn(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	ask.User = "alice"
	_, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	ask.User, ask.Fingerprint = "bob", "another"
	_, err = store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.NotFound)
}

func beginKnownOnlyOfAnotherUserFindsNone(t *testing.T, store memory.Store) {
	ref := fresh()
	begin(t, store, ref, "t1", "hello")
	ask := asking(ref, "t1", "hello")
	ask.User, ask.KnownOnly = "bob", true
	_, err := store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.NotFound)
}
