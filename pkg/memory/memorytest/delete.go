package memorytest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func deleteTests() tests {
	return tests{
		"Delete_LeavesNothing":          deleteLeavesNothing,
		"Delete_KeepsLateWritersOut":    deleteKeepsLateWritersOut,
		"Delete_RefusesUnknownSession":  deleteRefusesUnknownSession,
		"Delete_LeavesWhatOthersShare":  deleteLeavesWhatOthersShare,
		"Delete_TwiceChangesNothing":    deleteTwiceChangesNothing,
		"Delete_OfAClosedSession":       deleteOfAClosedSession,
		"Delete_NothingIsFoundAnyMore":  deleteNothingIsFoundAnyMore,
		"Delete_ASessionWithoutATurn":   deleteASessionWithoutATurn,
		"Delete_OtherSessionsGoOn":      deleteOtherSessionsGoOn,
		"Delete_KnownTurnsAreForgotten": deleteKnownTurnsAreForgotten,
	}
}

func remove(t *testing.T, store memory.Store, ref session.Ref) {
	t.Helper()
	_, err := store.DeleteSession(t.Context(), ref)
	require.NoError(t, err)
}

// sessionCalls is every call about a session beside those of a turn's holder.
func sessionCalls(store memory.Store, ref session.Ref) map[string]func(*testing.T) error {
	return map[string]func(*testing.T) error{
		"GetSession": func(t *testing.T) error {
			_, err := store.GetSession(t.Context(), ref)
			return err
		},
		"LoadHistory": func(t *testing.T) error {
			_, err := store.LoadHistory(t.Context(), ref, 0, 1)
			return err
		},
		"UpdateSession": func(t *testing.T) error {
			_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Create: true, Verb: session.Resume})
			return err
		},
		"CompactSession": func(t *testing.T) error {
			_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref})
			return err
		},
		"ClearSession": func(t *testing.T) error { return store.ClearSession(t.Context(), ref) },
		"GetState": func(t *testing.T) error {
			_, err := store.GetState(t.Context(), ref)
			return err
		},
		"UpdateState of nobody": func(t *testing.T) error {
			_, err := store.UpdateState(t.Context(), changing(ref, "late", "1"))
			return err
		},
		"GetArtifact": func(t *testing.T) error {
			_, err := store.GetArtifact(t.Context(), ref, "late", 0)
			return err
		},
		"ReadArtifact": func(t *testing.T) error {
			_, err := store.ReadArtifact(t.Context(), ref, contentOf("late"), 0)
			return err
		},
		"ListArtifacts": func(t *testing.T) error {
			_, err := store.ListArtifacts(t.Context(), ref)
			return err
		},
	}
}

func deleteLeavesNothing(t *testing.T, store memory.Store) {
	ref := fresh()
	talk(t, store, ref, 2)
	remove(t, store, ref)
	for name, call := range sessionCalls(store, ref) {
		requireMode(t, call(t), failure.SessionDeleted)
		require.Error(t, call(t), name)
	}
	for _, knownOnly := range []bool{false, true} {
		ask := asking(ref, "new", "hello?")
		ask.KnownOnly = knownOnly
		_, err := store.BeginTurn(t.Context(), ask)
		requireMode(t, err, failure.SessionDeleted)
	}
}

// deleteKeepsLateWritersOut deletes under a running turn.
func deleteKeepsLateWritersOut(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	record(t, store, holding(ref, turn), 1, rounds(2)...)
	put(t, store, holding(ref, turn), "picture", "a picture")
	remove(t, store, ref)
	for name, call := range holderCalls(store, holding(ref, turn)) {
		requireMode(t, call(t), failure.SessionDeleted)
		require.Error(t, call(t), name)
	}
	_, err := store.CommitStep(t.Context(), answering(ref, turn, "late", session.OutcomeCompleted))
	requireMode(t, err, failure.SessionDeleted)
	_, err = store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	requireMode(t, err, failure.SessionDeleted)
}

func deleteKnownTurnsAreForgotten(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := converse(t, store, ref, "t1", "hello", "hi")
	remove(t, store, ref)
	_, err := store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
	requireMode(t, err, failure.SessionDeleted)
	_, err = store.CommitStep(t.Context(), answering(ref, turn, "hi", session.OutcomeCompleted)) // that was made
	requireMode(t, err, failure.SessionDeleted)
	_, err = store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	requireMode(t, err, failure.SessionDeleted)
}

func deleteRefusesUnknownSession(t *testing.T, store memory.Store) {
	ref := fresh()
	_, err := store.DeleteSession(t.Context(), ref)
	requireMode(t, err, failure.NotFound, "session_id", ref.Session)
	begin(t, store, ref, "t1", "hello")
}

func deleteTwiceChangesNothing(t *testing.T, store memory.Store) {
	ref := fresh()
	begin(t, store, ref, "t1", "hello")
	for range 3 {
		remove(t, store, ref)
		_, err := store.GetSession(t.Context(), ref)
		requireMode(t, err, failure.SessionDeleted)
	}
}

func deleteOfAClosedSession(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Closed)
	remove(t, store, ref)
	_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Verb: session.Resume})
	requireMode(t, err, failure.SessionDeleted)
}

func deleteASessionWithoutATurn(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Created)
	remove(t, store, ref)
	_, err := store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
	requireMode(t, err, failure.SessionDeleted)
}

func deleteLeavesWhatOthersShare(t *testing.T, store memory.Store) {
	user, key := unique("alice"), "app:"+unique("theme")
	one, two := fresh(), fresh()
	for _, ref := range []session.Ref{one, two} {
		update(t, store, memory.Update{Ref: ref, Create: true, User: user})
	}
	change(t, store, changing(one, "user:name", `"Alice"`))
	change(t, store, changing(one, key, `"dark"`))
	remove(t, store, one)
	left := snapshot(t, store, two).Values
	require.JSONEq(t, `"Alice"`, string(left["user:name"]))
	require.JSONEq(t, `"dark"`, string(left[key]))
}

func deleteNothingIsFoundAnyMore(t *testing.T, store memory.Store) {
	user := unique("alice")
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	ask.User = user
	_, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Len(t, find(t, store, user, "hello"), 1)
	remove(t, store, ref)
	require.Empty(t, find(t, store, user, "hello"))
	require.Empty(t, list(t, store, user))
}

func deleteOtherSessionsGoOn(t *testing.T, store memory.Store) {
	one, two := fresh(), fresh()
	talk(t, store, one, 2)
	turn := begin(t, store, two, "t0", "hello")
	before := visible(t, store, two)
	remove(t, store, one)
	requireSame(t, before, visible(t, store, two))
	commit(t, store, answering(two, turn, "hi", session.OutcomeCompleted))
}
