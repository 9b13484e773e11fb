// Package state tests scoped state and the configurations of agents.
package state

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tests returns the tests of this package by name.
func Tests() fixture.Tests {
	return fixture.Merge(stateTests(), commitStateTests(), expectedTests(), configTests(), ownedTests())
}

func stateTests() fixture.Tests {
	return fixture.Tests{
		"State_ScopesAreShared":              stateScopesAreShared,
		"State_EmptyValueRemovesTheKey":      stateEmptyValueRemovesTheKey,
		"State_RevisionIsCompared":           stateRevisionIsCompared,
		"State_RequestIsIdempotent":          stateRequestIsIdempotent,
		"State_RequestIDsBelongToOneSession": stateRequestIDsBelongToOneSession,
		"State_RemembersTheLatestRequests":   stateRemembersTheLatestRequests,
		"State_UpdateOfATurnIsFenced":        stateUpdateOfATurnIsFenced,
		"State_RejectsKeysOfOtherTiers":      stateRejectsKeysOfOtherTiers,
		"State_RejectsSeveralScopes":         stateRejectsSeveralScopes,
		"State_RejectsUserKeysWithoutAUser":  stateRejectsUserKeysWithoutAUser,
		"State_RejectsInvalidJSON":           stateRejectsInvalidJSON,
		"State_RejectsTooManyKeys":           stateRejectsTooManyKeys,
		"State_RejectsTooManyBytes":          stateRejectsTooManyBytes,
		"State_RejectsUnknownSession":        stateRejectsUnknownSession,
		"State_KeysMayHaveAnyCharacters":     stateKeysMayHaveAnyCharacters,
	}
}

// newSessionOfUser creates a session of the user that has no turn yet.
func newSessionOfUser(t *testing.T, store memory.Store, user string) session.Ref {
	t.Helper()
	ref := fixture.NewRef()
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Create: true, User: user})
	return ref
}

// Req: AD-19
func stateScopesAreShared(t *testing.T, store memory.Store) {
	alice, bob := fixture.UniqueName("alice"), fixture.UniqueName("bob")
	one, two, three := newSessionOfUser(t, store, alice), newSessionOfUser(t, store, alice), newSessionOfUser(t, store, bob)
	app := "app:" + fixture.UniqueName("theme")
	require.EqualValues(t, 1, fixture.UpdateState(t, store, fixture.NewStateUpdate(one, "mood", `"good"`)))
	require.EqualValues(t, 1, fixture.UpdateState(t, store, fixture.NewStateUpdate(one, "user:name", `{"first":"Alice"}`)))
	fixture.UpdateState(t, store, fixture.NewStateUpdate(one, app, "true"))
	for ref, want := range map[session.Ref]map[string]json.RawMessage{
		one:   fixture.Delta("mood", `"good"`, "user:name", `{"first":"Alice"}`, app, "true"),
		two:   fixture.Delta("user:name", `{"first":"Alice"}`, app, "true"),
		three: fixture.Delta(app, "true"),
	} {
		s := fixture.GetState(t, store, ref)
		for key, value := range want {
			require.JSONEq(t, string(value), string(s.Values[key]), key)
		}
		for key := range s.Values {
			require.True(t, want[key] != nil || memory.ScopeOf(key) == memory.ScopeApp, "nobody set %s", key)
		}
		require.Equal(t, want["mood"] != nil, s.Revisions[memory.ScopeSession] == 1)
		require.Equal(t, want["user:name"] != nil, s.Revisions[memory.ScopeUser] == 1)
		require.Positive(t, s.Revisions[memory.ScopeApp])
	}
	require.EqualValues(t, 2, fixture.UpdateState(t, store, fixture.NewStateUpdate(two, "user:name", `"Al"`)))
	require.JSONEq(t, `"Al"`, string(fixture.GetState(t, store, one).Values["user:name"]))
}

func stateEmptyValueRemovesTheKey(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Created)
	u := fixture.NewStateUpdate(ref, "a", "1")
	u.Delta = fixture.Delta("a", "1", "b", "2")
	fixture.UpdateState(t, store, u)
	require.EqualValues(t, 2, fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "a", "")))
	s := fixture.GetState(t, store, ref)
	require.NotContains(t, s.Values, "a")
	require.Contains(t, s.Values, "b")
	require.EqualValues(t, 3, fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "a", "")), "each call is a revision")
	require.EqualValues(t, 4, fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "b", "null")))
	require.Contains(t, fixture.GetState(t, store, ref).Values, "b", "null is a value")
}

func stateRevisionIsCompared(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Created)
	u := fixture.NewStateUpdate(ref, "a", "1")
	u.IfRevision = new(int64)
	require.EqualValues(t, 1, fixture.UpdateState(t, store, u))
	for _, wrong := range []int64{0, 2} {
		u := fixture.NewStateUpdate(ref, "a", "2")
		u.IfRevision = &wrong
		_, err := store.UpdateState(t.Context(), u)
		fixture.RequireMode(t, err, failure.RevisionMismatch, "revision", "1")
	}
	require.EqualValues(t, 1, fixture.UpdateState(t, store, u), "it was made already")
	right := fixture.NewStateUpdate(ref, "a", "2")
	right.IfRevision = new(int64(1))
	require.EqualValues(t, 2, fixture.UpdateState(t, store, right))
}

func stateRequestIsIdempotent(t *testing.T, store memory.Store) {
	ref := newSessionOfUser(t, store, fixture.UniqueName("alice"))
	for _, key := range []string{"n", "user:n"} {
		first := fixture.NewStateUpdate(ref, key, "1")
		require.EqualValues(t, 1, fixture.UpdateState(t, store, first))
		require.EqualValues(t, 2, fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, key, "2")))
		require.EqualValues(t, 1, fixture.UpdateState(t, store, first), "answered as before")
		require.JSONEq(t, "2", string(fixture.GetState(t, store, ref).Values[key]))
	}
	// The rejected change is not applied.
	u := fixture.NewStateUpdate(ref, "n", "3")
	u.IfRevision = new(int64(7))
	_, err := store.UpdateState(t.Context(), u)
	fixture.RequireMode(t, err, failure.RevisionMismatch)
	u.IfRevision = nil
	require.EqualValues(t, 3, fixture.UpdateState(t, store, u))
}

// Request ids are separate for each session, so clients of two sessions may use the same ids.
func stateRequestIDsBelongToOneSession(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	for i := range 2 {
		u := fixture.NewStateUpdate(newSessionOfUser(t, store, user), fmt.Sprintf("user:%d", i), "1")
		u.RequestID = "1"
		require.EqualValues(t, i+1, fixture.UpdateState(t, store, u))
	}
}

func stateRemembersTheLatestRequests(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Created)
	first := fixture.NewStateUpdate(ref, "n", "0")
	fixture.UpdateState(t, store, first)
	for range memory.MaxRequests - 1 {
		fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "n", "1"))
	}
	require.EqualValues(t, 1, fixture.UpdateState(t, store, first))
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "n", "1"))
	require.EqualValues(t, memory.MaxRequests+2, fixture.UpdateState(t, store, first), "it is forgotten")
}

func stateUpdateOfATurnIsFenced(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	app := "app:" + fixture.UniqueName("theme")
	for _, key := range []string{"mood", app} {
		u := fixture.NewStateUpdate(ref, key, "1")
		u.TurnID, u.Epoch = "t1", turn.Epoch
		revision := fixture.UpdateState(t, store, u)
		require.Equal(t, revision, fixture.UpdateState(t, store, u))
	}
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "mood", "2")) // a change by an operator during the turn
	next := fixture.TakeOver(t, store, ref, turn)
	for _, key := range []string{"mood", app} {
		u := fixture.NewStateUpdate(ref, key, "3")
		u.TurnID, u.Epoch = "t1", turn.Epoch
		_, err := store.UpdateState(t.Context(), u)
		fixture.RequireMode(t, err, failure.Fenced, "current_epoch", fmt.Sprint(next.Epoch))
		u.TurnID, u.Epoch = "t9", next.Epoch
		_, err = store.UpdateState(t.Context(), u)
		fixture.RequireMode(t, err, failure.NotFound, "turn_id", "t9")
	}
	s := fixture.GetState(t, store, ref).Values
	require.JSONEq(t, "2", string(s["mood"]))
	require.JSONEq(t, "1", string(s[app]))
}

// Req: SO-12
func stateRejectsKeysOfOtherTiers(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	before := fixture.ReadSession(t, store, ref)
	for key, owner := range map[string]string{
		"_scratch": "agent", "temp:x": "agent", "trace_id": "orchestrator", "routing": "orchestrator", "config": "shared",
	} {
		u := fixture.NewStateUpdate(ref, "mood", "1")
		u.Delta[key] = json.RawMessage("1")
		_, err := store.UpdateState(t.Context(), u)
		fixture.RequireMode(t, err, failure.StateViolation, "key", key, "owner", owner)
		c := fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted)
		c.State = u.Delta
		_, err = store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.StateViolation, "key", key, "owner", owner)
	}
	require.Equal(t, before, fixture.ReadSession(t, store, ref))
}

func stateRejectsSeveralScopes(t *testing.T, store memory.Store) {
	ref := newSessionOfUser(t, store, fixture.UniqueName("alice"))
	for _, d := range []map[string]json.RawMessage{fixture.Delta("a", "1", "user:a", "1"), fixture.Delta("user:a", "1", "app:a", "1"), nil} {
		_, err := store.UpdateState(t.Context(), memory.StateUpdate{Ref: ref, RequestID: fixture.UniqueName("r"), Delta: d})
		fixture.RequireMode(t, err, failure.UserInvalidInput)
	}
	require.NotContains(t, fixture.GetState(t, store, ref).Values, "a")
}

func stateRejectsUserKeysWithoutAUser(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	_, err := store.UpdateState(t.Context(), fixture.NewStateUpdate(ref, "user:name", `"x"`))
	fixture.RequireMode(t, err, failure.UserInvalidInput)
	c := fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted)
	c.State = fixture.Delta("user:name", `"x"`)
	_, err = store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.UserInvalidInput)
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

func stateRejectsInvalidJSON(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Created)
	for _, value := range []string{"good", "{", "1 2", `"` + strings.Repeat("a", memory.MaxStateValueBytes) + `"`} {
		_, err := store.UpdateState(t.Context(), fixture.NewStateUpdate(ref, "mood", value))
		fixture.RequireMode(t, err, failure.UserInvalidInput, "key", "mood")
	}
	require.Zero(t, fixture.GetState(t, store, ref).Revisions[memory.ScopeSession])
}

func stateRejectsTooManyKeys(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Created)
	for n := 0; n < memory.MaxStateKeys; n += 250 {
		u := fixture.NewStateUpdate(ref, "key-0", "1")
		for i := n; i < n+250; i++ {
			u.Delta[fmt.Sprintf("key-%d", i)] = json.RawMessage("1")
		}
		fixture.UpdateState(t, store, u)
	}
	revision := fixture.GetState(t, store, ref).Revisions[memory.ScopeSession]
	u := fixture.NewStateUpdate(ref, "more", "1")
	_, err := store.UpdateState(t.Context(), u)
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Equal(t, revision, fixture.GetState(t, store, ref).Revisions[memory.ScopeSession])
	u.Delta["key-0"] = nil // makes room
	fixture.UpdateState(t, store, u)
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "more", "2"))
	require.Len(t, sessionValues(fixture.GetState(t, store, ref)), memory.MaxStateKeys)
}

func sessionValues(s memory.Snapshot) map[string]json.RawMessage {
	own := map[string]json.RawMessage{}
	for key, value := range s.Values {
		if memory.ScopeOf(key) == memory.ScopeSession {
			own[key] = value
		}
	}
	return own
}

func stateRejectsTooManyBytes(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	const most = memory.MaxStateValueBytes - 16
	big := `"` + strings.Repeat("a", most-2) + `"`
	full := fixture.NewStateUpdate(ref, "key-00", big)
	for i := range memory.MaxStateBytes / (most + len("key-00")) {
		full.Delta[fmt.Sprintf("key-%02d", i)] = json.RawMessage(big)
	}
	fixture.UpdateState(t, store, full)
	_, err := store.UpdateState(t.Context(), fixture.NewStateUpdate(ref, "more", big))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	c := fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted)
	c.State = fixture.Delta("more", big)
	_, err = store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "key-00", "1"))
	fixture.CommitStep(t, store, c)
	require.Contains(t, fixture.GetState(t, store, ref).Values, "more")
}

func stateRejectsUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.GetState(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	for _, key := range []string{"mood", "app:mood"} {
		_, err = store.UpdateState(t.Context(), fixture.NewStateUpdate(ref, key, "1"))
		fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	}
}

func stateKeysMayHaveAnyCharacters(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Created)
	u := fixture.NewStateUpdate(ref, "rev", "1")
	u.Delta = fixture.Delta("rev", "1", "bytes", "2", "keys", "3", "v:x", "4", "ü {} \x00", "5", "user", "6", strings.Repeat("k", memory.MaxStateKeyBytes), "7")
	fixture.UpdateState(t, store, u)
	require.Equal(t, u.Delta, sessionValues(fixture.GetState(t, store, ref)))
	require.EqualValues(t, 1, fixture.GetState(t, store, ref).Revisions[memory.ScopeSession])
}
