// Package erasure tests that a deleted session and an erased user leave nothing behind.
package erasure

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tests returns the tests of this package by name.
func Tests() fixture.Tests {
	return fixture.Merge(deleteTests(), eraseTests())
}

func deleteTests() fixture.Tests {
	return fixture.Tests{
		"Delete_LeavesNothing":            deleteLeavesNothing,
		"Delete_KeepsLateWritersOut":      deleteKeepsLateWritersOut,
		"Delete_RefusesUnknownSession":    deleteRefusesUnknownSession,
		"Delete_KeepsSharedData":          deleteKeepsSharedData,
		"Delete_TwiceChangesNothing":      deleteTwiceChangesNothing,
		"Delete_OfAClosedSession":         deleteOfAClosedSession,
		"Delete_NothingIsFoundAfterwards": deleteNothingIsFoundAfterwards,
		"Delete_ASessionWithoutATurn":     deleteASessionWithoutATurn,
		"Delete_OtherSessionsContinue":    deleteOtherSessionsContinue,
		"Delete_KnownTurnsAreForgotten":   deleteKnownTurnsAreForgotten,
	}
}

func deleteLeavesNothing(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 2)
	fixture.DeleteSession(t, store, ref)
	for name, call := range fixture.SessionCalls(store, ref) {
		fixture.RequireMode(t, call(t), failure.SessionDeleted)
		require.Error(t, call(t), name)
	}
	for _, lookupOnly := range []bool{false, true} {
		ask := fixture.NewBegin(ref, "new", "hello?")
		ask.LookupOnly = lookupOnly
		_, err := store.BeginTurn(t.Context(), ask)
		fixture.RequireMode(t, err, failure.SessionDeleted)
	}
}

// deleteKeepsLateWritersOut deletes the session of a running turn.
func deleteKeepsLateWritersOut(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.Record(t, store, fixture.LeaseOf(ref, turn), 1, fixture.ModelRounds(2)...)
	fixture.PutArtifact(t, store, fixture.LeaseOf(ref, turn), "picture", "a picture")
	fixture.DeleteSession(t, store, ref)
	for name, call := range fixture.TurnCalls(store, fixture.LeaseOf(ref, turn)) {
		fixture.RequireMode(t, call(t), failure.SessionDeleted)
		require.Error(t, call(t), name)
	}
	_, err := store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, "late", session.OutcomeCompleted))
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.FailTurn(t.Context(), fixture.NewFail(ref, turn, session.OutcomeFailed))
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func deleteKnownTurnsAreForgotten(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	fixture.DeleteSession(t, store, ref)
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted)) // the commit that was made before
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.FailTurn(t.Context(), fixture.NewFail(ref, turn, session.OutcomeFailed))
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func deleteRefusesUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.DeleteSession(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	fixture.BeginTurn(t, store, ref, "t1", "hello")
}

func deleteTwiceChangesNothing(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.BeginTurn(t, store, ref, "t1", "hello")
	for range 3 {
		fixture.DeleteSession(t, store, ref)
		_, err := store.GetSession(t.Context(), ref)
		fixture.RequireMode(t, err, failure.SessionDeleted)
	}
}

func deleteOfAClosedSession(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Closed)
	fixture.DeleteSession(t, store, ref)
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Resume})
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func deleteASessionWithoutATurn(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Created)
	fixture.DeleteSession(t, store, ref)
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func deleteKeepsSharedData(t *testing.T, store memory.Store) {
	user, key := fixture.UniqueName("alice"), "app:"+fixture.UniqueName("theme")
	one, two := fixture.NewRef(), fixture.NewRef()
	for _, ref := range []session.Ref{one, two} {
		fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Create: true, User: user})
	}
	fixture.UpdateState(t, store, fixture.NewStateUpdate(one, "user:name", `"Alice"`))
	fixture.UpdateState(t, store, fixture.NewStateUpdate(one, key, `"dark"`))
	fixture.DeleteSession(t, store, one)
	left := fixture.GetState(t, store, two).Values
	require.JSONEq(t, `"Alice"`, string(left["user:name"]))
	require.JSONEq(t, `"dark"`, string(left[key]))
}

func deleteNothingIsFoundAfterwards(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = user
	_, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Len(t, fixture.Search(t, store, user, "hello"), 1)
	fixture.DeleteSession(t, store, ref)
	require.Empty(t, fixture.Search(t, store, user, "hello"))
	require.Empty(t, fixture.ListSessions(t, store, user))
}

func deleteOtherSessionsContinue(t *testing.T, store memory.Store) {
	one, two := fixture.NewRef(), fixture.NewRef()
	fixture.RunTurns(t, store, one, 2)
	turn := fixture.BeginTurn(t, store, two, "t0", "hello")
	before := fixture.View(t, store, two)
	fixture.DeleteSession(t, store, one)
	fixture.RequireEqual(t, before, fixture.View(t, store, two))
	fixture.CommitStep(t, store, fixture.NewCommit(two, turn, "hi", session.OutcomeCompleted))
}
