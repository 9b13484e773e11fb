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
		"Delete_LeavesNothing":                deleteLeavesNothing,
		"Delete_RejectsLateWriters":           deleteRejectsLateWriters,
		"Delete_RejectsUnknownSession":        deleteRejectsUnknownSession,
		"Delete_KeepsSharedData":              deleteKeepsSharedData,
		"Delete_RepeatChangesNothing":         deleteRepeatChangesNothing,
		"Delete_WorksForAClosedSession":       deleteWorksForAClosedSession,
		"Delete_HidesTheSession":              deleteHidesTheSession,
		"Delete_WorksForASessionWithoutTurns": deleteWorksForASessionWithoutTurns,
		"Delete_KeepsOtherSessions":           deleteKeepsOtherSessions,
		"Delete_ForgetsKnownTurns":            deleteForgetsKnownTurns,
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

// deleteRejectsLateWriters deletes a session while one of its turns runs. The turn can write nothing afterwards.
func deleteRejectsLateWriters(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, fixture.ModelRounds(2)...)
	fixture.PutArtifact(t, store, fixture.LeaseOf(ref, turn), "picture", "a picture")
	fixture.DeleteSession(t, store, ref)
	for name, call := range fixture.TurnCalls(store, fixture.LeaseOf(ref, turn)) {
		fixture.RequireMode(t, call(t), failure.SessionDeleted)
		require.Error(t, call(t), name)
	}
	_, err := store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, "late", session.OutcomeCompleted))
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func deleteForgetsKnownTurns(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	fixture.DeleteSession(t, store, ref)
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted)) // a repetition of the commit before the deletion
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func deleteRejectsUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.DeleteSession(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	fixture.BeginTurn(t, store, ref, "t1", "hello")
}

func deleteRepeatChangesNothing(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.BeginTurn(t, store, ref, "t1", "hello")
	for range 3 {
		fixture.DeleteSession(t, store, ref)
		_, err := store.GetSession(t.Context(), ref)
		fixture.RequireMode(t, err, failure.SessionDeleted)
	}
}

func deleteWorksForAClosedSession(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Closed)
	fixture.DeleteSession(t, store, ref)
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Resume})
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func deleteWorksForASessionWithoutTurns(t *testing.T, store memory.Store) {
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

func deleteHidesTheSession(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = user
	_, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Len(t, fixture.SearchMemory(t, store, user, "hello"), 1)
	fixture.DeleteSession(t, store, ref)
	require.Empty(t, fixture.SearchMemory(t, store, user, "hello"))
	require.Empty(t, fixture.ListSessions(t, store, user))
}

func deleteKeepsOtherSessions(t *testing.T, store memory.Store) {
	one, two := fixture.NewRef(), fixture.NewRef()
	fixture.RunTurns(t, store, one, 2)
	turn := fixture.BeginTurn(t, store, two, "t0", "hello")
	before := fixture.ReadSession(t, store, two)
	fixture.DeleteSession(t, store, one)
	fixture.RequireEqual(t, before, fixture.ReadSession(t, store, two))
	fixture.CommitStep(t, store, fixture.NewCommit(two, turn, "hi", session.OutcomeCompleted))
}
