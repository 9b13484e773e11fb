package memorytest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func eraseTests() tests {
	return tests{
		"Delete_SaysWhatItRemoved":                eraseSaysWhatItRemoved,
		"EraseUser_LeavesNothing":                 eraseUserLeavesNothing,
		"EraseUser_RefusesNewSessionsUntilItEnds": eraseUserRefusesNewSessions,
		"EraseUser_KeepsLateWritersOut":           eraseUserKeepsLateWritersOut,
		"EraseUser_LeavesOthers":                  eraseUserLeavesOthers,
		"EraseUser_OfNobodyKnown":                 eraseUserOfNobodyKnown,
	}
}

// eraseUser deletes sessions for as long as there are some.
func eraseUser(t *testing.T, store memory.Store, user string) memory.Erasure {
	t.Helper()
	for {
		e, err := store.EraseUser(t.Context(), tenant, user)
		require.NoError(t, err)
		if len(e.Sessions) == 0 {
			return e.Erasure
		}
		for _, id := range e.Sessions {
			remove(t, store, session.Ref{Tenant: tenant, Session: id})
		}
	}
}

func eraseSaysWhatItRemoved(t *testing.T, store memory.Store) {
	h := holderFor(t, store, unique("alice"))
	change(t, store, changing(h.Ref, "mood", `"calm"`))
	put(t, store, h, "report", "so it is")
	commit(t, store, answering(h.Ref, session.Turn{ID: h.TurnID, Epoch: h.Epoch, Sequence: 1}, "hi", session.OutcomeCompleted))
	first, err := store.DeleteSession(t.Context(), h.Ref)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{
		memory.KindMessages: 2, memory.KindTurns: 1, memory.KindStateKeys: 1, memory.KindArtifacts: 1, memory.KindArtifactBytes: 8,
	}, first.Removed)
	require.Equal(t, h.Ref.Session, first.Session)
	require.False(t, first.Ended.IsZero())
	require.Len(t, first.Remains, 1)
	require.Equal(t, first.Ended.Add(memory.Retention), first.Remains[0].Until)
	again, err := store.DeleteSession(t.Context(), h.Ref)
	require.NoError(t, err)
	require.Equal(t, first, again, "the mark is the receipt")
}

func eraseUserLeavesNothing(t *testing.T, store memory.Store) {
	user := unique("alice")
	one, two := holderFor(t, store, user), holderFor(t, store, user)
	change(t, store, changing(one.Ref, "user:name", `"Alice"`))
	put(t, store, two, "user:profile", "Alice")
	e := eraseUser(t, store, user)
	require.Equal(t, user, e.User)
	require.Equal(t, map[string]int64{memory.KindUserState: 1, memory.KindUserArtifacts: 1, memory.KindUserBytes: 5}, e.Removed)
	require.Empty(t, list(t, store, user))
	require.Empty(t, find(t, store, user, "hello"))

	// Whoever comes by the same name finds nothing.
	next := holderFor(t, store, user)
	require.NotContains(t, snapshot(t, store, next.Ref).Values, "user:name")
	require.Empty(t, artifacts(t, store, next.Ref))
	require.Equal(t, 1, put(t, store, next, "user:profile", "another").Version)
	change(t, store, changing(next.Ref, "user:name", `"Another"`))
	require.JSONEq(t, `"Another"`, string(snapshot(t, store, next.Ref).Values["user:name"]))
}

func eraseUserRefusesNewSessions(t *testing.T, store memory.Store) {
	user := unique("alice")
	old := holderFor(t, store, user)
	e, err := store.EraseUser(t.Context(), tenant, user)
	require.NoError(t, err)
	require.Equal(t, []string{old.Ref.Session}, e.Sessions)
	ask := asking(fresh(), "t1", "hello")
	ask.User = user
	_, err = store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.SessionDeleted)
	_, err = store.UpdateSession(t.Context(), memory.Update{Ref: fresh(), Create: true, User: user})
	requireMode(t, err, failure.SessionDeleted)
	eraseUser(t, store, user)
	require.Empty(t, list(t, store, user), "also what was refused")
	holderFor(t, store, user)
}

func eraseUserKeepsLateWritersOut(t *testing.T, store memory.Store) {
	user := unique("alice")
	h := holderFor(t, store, user)
	put(t, store, h, "user:profile", "Alice")
	eraseUser(t, store, user)
	next := holderFor(t, store, user)
	for name, call := range holderCalls(store, h) {
		requireMode(t, call(t), failure.SessionDeleted)
		require.Error(t, call(t), name)
	}
	_, err := store.UpdateState(t.Context(), changing(h.Ref, "user:name", `"Alice"`))
	requireMode(t, err, failure.SessionDeleted)
	requireMode(t, store.DeleteArtifact(t.Context(), h, "user:profile", 0), failure.SessionDeleted)
	require.NotContains(t, snapshot(t, store, next.Ref).Values, "user:name")
	require.Empty(t, artifacts(t, store, next.Ref))
}

func eraseUserLeavesOthers(t *testing.T, store memory.Store) {
	alice, bob := holderFor(t, store, unique("alice")), holderFor(t, store, unique("bob"))
	key := "app:" + unique("theme")
	change(t, store, changing(alice.Ref, key, `"dark"`))
	change(t, store, changing(bob.Ref, "user:name", `"Bob"`))
	put(t, store, bob, "user:profile", "Bob")
	before := visible(t, store, bob.Ref)
	eraseUser(t, store, get(t, store, alice.Ref).User)
	requireSame(t, before, visible(t, store, bob.Ref))
	require.JSONEq(t, `"dark"`, string(snapshot(t, store, bob.Ref).Values[key]), "it is the tenant's")
}

func eraseUserOfNobodyKnown(t *testing.T, store memory.Store) {
	user := unique("nobody")
	for range 2 {
		require.Empty(t, eraseUser(t, store, user).Removed)
	}
}
