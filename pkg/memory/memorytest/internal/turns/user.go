package turns

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func userTests() fixture.Tests {
	return fixture.Tests{
		"User_IsSetByTheFirstTurn":               userIsSetByTheFirstTurn,
		"User_OfACreatedSessionIsChecked":        userOfACreatedSessionIsChecked,
		"Begin_HidesTheTurnFromOtherUsers":       beginHidesTheTurnFromOtherUsers,
		"Begin_LookupHidesTheTurnFromOtherUsers": beginLookupHidesTheTurnFromOtherUsers,
	}
}

func userIsSetByTheFirstTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = "alice@example.com"
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, ask.User, fixture.GetSession(t, store, ref).User)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "hi", session.OutcomeCompleted))

	for _, user := range []string{"bob@example.com", ""} {
		next := fixture.NewBegin(ref, "t2", "and me")
		next.User = user
		_, err := store.BeginTurn(t.Context(), next)
		fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	}
	next := fixture.NewBegin(ref, "t2", "and me")
	next.User = ask.User
	_, err = store.BeginTurn(t.Context(), next)
	require.NoError(t, err)

	// A session whose first turn had no user never gets one.
	nobodys := fixture.NewRef()
	fixture.RunTurn(t, store, nobodys, "t1", "hello", "hi")
	next.Ref = nobodys
	_, err = store.BeginTurn(t.Context(), next)
	fixture.RequireMode(t, err, failure.NotFound)
	require.Empty(t, fixture.GetSession(t, store, nobodys).User)
}

func userOfACreatedSessionIsChecked(t *testing.T, store memory.Store) {
	alices, open := fixture.NewRef(), fixture.NewRef()
	user := fixture.UniqueName("alice")
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: alices, Create: true, User: user})
	ask := fixture.NewBegin(alices, "t1", "hello")
	ask.User = "bob"
	_, err := store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound)
	ask.User = user
	_, err = store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)

	// A session that was created without a user gets the user of its first turn, even if the session was paused.
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: open, Create: true, Verb: session.Pause})
	ask.Ref = open
	_, err = store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, user, fixture.GetSession(t, store, open).User)
	require.Len(t, fixture.ListSessions(t, store, user), 2)
}

func beginHidesTheTurnFromOtherUsers(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = "alice"
	_, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	ask.User, ask.Fingerprint = "bob", "another"
	_, err = store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound)
}

func beginLookupHidesTheTurnFromOtherUsers(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.BeginTurn(t, store, ref, "t1", "hello")
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User, ask.LookupOnly = "bob", true
	_, err := store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound)
}
