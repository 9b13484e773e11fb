package memorytest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func stateTests() tests {
	return tests{
		"State_ScopesAreShared":            stateScopesAreShared,
		"State_EmptyValueRemoves":          stateEmptyValueRemoves,
		"State_RevisionIsCompared":         stateRevisionIsCompared,
		"State_RequestIsMadeOnce":          stateRequestIsMadeOnce,
		"State_RequestsOfSessionsAreApart": stateRequestsOfSessionsAreApart,
		"State_LatestRequestsAreKnown":     stateLatestRequestsAreKnown,
		"State_InTheNameOfATurn":           stateInTheNameOfATurn,
		"State_RefusesKeysOfOtherTiers":    stateRefusesKeysOfOtherTiers,
		"State_RefusesSeveralScopes":       stateRefusesSeveralScopes,
		"State_RefusesUserKeysOfNobody":    stateRefusesUserKeysOfNobody,
		"State_RefusesWhatIsNotJSON":       stateRefusesWhatIsNotJSON,
		"State_RefusesTooManyKeys":         stateRefusesTooManyKeys,
		"State_RefusesTooManyBytes":        stateRefusesTooManyBytes,
		"State_RefusesUnknownSession":      stateRefusesUnknownSession,
		"State_KeysMayHoldAnything":        stateKeysMayHoldAnything,
	}
}

// delta is changes, keys and values in turn.
func delta(pairs ...string) map[string]json.RawMessage {
	d := map[string]json.RawMessage{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return d
}

// changing is a change of one key, by nobody's turn and a request of its own.
func changing(ref session.Ref, key, value string) memory.StateUpdate {
	return memory.StateUpdate{Ref: ref, RequestID: unique("request"), Delta: delta(key, value)}
}

func change(t *testing.T, store memory.Store, u memory.StateUpdate) int64 {
	t.Helper()
	revision, err := store.UpdateState(t.Context(), u)
	require.NoError(t, err)
	return revision
}

func snapshot(t *testing.T, store memory.Store, ref session.Ref) memory.Snapshot {
	t.Helper()
	s, err := store.GetState(t.Context(), ref)
	require.NoError(t, err)
	return s
}

// ofUser makes a session of the user, without a turn.
func ofUser(t *testing.T, store memory.Store, user string) session.Ref {
	t.Helper()
	ref := fresh()
	update(t, store, memory.Update{Ref: ref, Create: true, User: user})
	return ref
}

// Req: AD-19
func stateScopesAreShared(t *testing.T, store memory.Store) {
	alice, bob := unique("alice"), unique("bob")
	one, two, three := ofUser(t, store, alice), ofUser(t, store, alice), ofUser(t, store, bob)
	app := "app:" + unique("theme")
	require.EqualValues(t, 1, change(t, store, changing(one, "mood", `"good"`)))
	require.EqualValues(t, 1, change(t, store, changing(one, "user:name", `{"first":"Alice"}`)))
	change(t, store, changing(one, app, "true"))
	for ref, want := range map[session.Ref]map[string]json.RawMessage{
		one:   delta("mood", `"good"`, "user:name", `{"first":"Alice"}`, app, "true"),
		two:   delta("user:name", `{"first":"Alice"}`, app, "true"),
		three: delta(app, "true"),
	} {
		s := snapshot(t, store, ref)
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
	require.EqualValues(t, 2, change(t, store, changing(two, "user:name", `"Al"`)))
	require.JSONEq(t, `"Al"`, string(snapshot(t, store, one).Values["user:name"]))
}

func stateEmptyValueRemoves(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Created)
	u := changing(ref, "a", "1")
	u.Delta = delta("a", "1", "b", "2")
	change(t, store, u)
	require.EqualValues(t, 2, change(t, store, changing(ref, "a", "")))
	s := snapshot(t, store, ref)
	require.NotContains(t, s.Values, "a")
	require.Contains(t, s.Values, "b")
	require.EqualValues(t, 3, change(t, store, changing(ref, "a", "")), "each call is a revision")
	require.EqualValues(t, 4, change(t, store, changing(ref, "b", "null")))
	require.Contains(t, snapshot(t, store, ref).Values, "b", "null is a value")
}

func stateRevisionIsCompared(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Created)
	u := changing(ref, "a", "1")
	u.IfRevision = new(int64)
	require.EqualValues(t, 1, change(t, store, u))
	for _, wrong := range []int64{0, 2} {
		u := changing(ref, "a", "2")
		u.IfRevision = &wrong
		_, err := store.UpdateState(t.Context(), u)
		requireMode(t, err, failure.RevisionMismatch, "revision", "1")
	}
	require.EqualValues(t, 1, change(t, store, u), "it was made already")
	right := changing(ref, "a", "2")
	right.IfRevision = new(int64(1))
	require.EqualValues(t, 2, change(t, store, right))
}

func stateRequestIsMadeOnce(t *testing.T, store memory.Store) {
	ref := ofUser(t, store, unique("alice"))
	for _, key := range []string{"n", "user:n"} {
		first := changing(ref, key, "1")
		require.EqualValues(t, 1, change(t, store, first))
		require.EqualValues(t, 2, change(t, store, changing(ref, key, "2")))
		require.EqualValues(t, 1, change(t, store, first), "answered as before")
		require.JSONEq(t, "2", string(snapshot(t, store, ref).Values[key]))
	}
	// What was refused was not made.
	u := changing(ref, "n", "3")
	u.IfRevision = new(int64(7))
	_, err := store.UpdateState(t.Context(), u)
	requireMode(t, err, failure.RevisionMismatch)
	u.IfRevision = nil
	require.EqualValues(t, 3, change(t, store, u))
}

// Two clients may count their requests alike.
func stateRequestsOfSessionsAreApart(t *testing.T, store memory.Store) {
	user := unique("alice")
	for i := range 2 {
		u := changing(ofUser(t, store, user), fmt.Sprintf("user:%d", i), "1")
		u.RequestID = "1"
		require.EqualValues(t, i+1, change(t, store, u))
	}
}

func stateLatestRequestsAreKnown(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Created)
	first := changing(ref, "n", "0")
	change(t, store, first)
	for range memory.MaxRequests - 1 {
		change(t, store, changing(ref, "n", "1"))
	}
	require.EqualValues(t, 1, change(t, store, first))
	change(t, store, changing(ref, "n", "1"))
	require.EqualValues(t, memory.MaxRequests+2, change(t, store, first), "it is forgotten")
}

func stateInTheNameOfATurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	app := "app:" + unique("theme")
	for _, key := range []string{"mood", app} {
		u := changing(ref, key, "1")
		u.TurnID, u.Epoch = "t1", turn.Epoch
		revision := change(t, store, u)
		require.Equal(t, revision, change(t, store, u))
	}
	change(t, store, changing(ref, "mood", "2")) // an operator, beside the turn
	next := takeOver(t, store, ref, turn)
	for _, key := range []string{"mood", app} {
		u := changing(ref, key, "3")
		u.TurnID, u.Epoch = "t1", turn.Epoch
		_, err := store.UpdateState(t.Context(), u)
		requireMode(t, err, failure.Fenced, "current_epoch", fmt.Sprint(next.Epoch))
		u.TurnID, u.Epoch = "t9", next.Epoch
		_, err = store.UpdateState(t.Context(), u)
		requireMode(t, err, failure.NotFound, "turn_id", "t9")
	}
	s := snapshot(t, store, ref).Values
	require.JSONEq(t, "2", string(s["mood"]))
	require.JSONEq(t, "1", string(s[app]))
}

// Req: SO-12
func stateRefusesKeysOfOtherTiers(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	before := visible(t, store, ref)
	for key, owner := range map[string]string{
		"_scratch": "agent", "temp:x": "agent", "trace_id": "orchestrator", "routing": "orchestrator", "config": "shared",
	} {
		u := changing(ref, "mood", "1")
		u.Delta[key] = json.RawMessage("1")
		_, err := store.UpdateState(t.Context(), u)
		requireMode(t, err, failure.StateViolation, "key", key, "owner", owner)
		c := answering(ref, turn, "hi", session.OutcomeCompleted)
		c.State = u.Delta
		_, err = store.CommitStep(t.Context(), c)
		requireMode(t, err, failure.StateViolation, "key", key, "owner", owner)
	}
	require.Equal(t, before, visible(t, store, ref))
}

func stateRefusesSeveralScopes(t *testing.T, store memory.Store) {
	ref := ofUser(t, store, unique("alice"))
	for _, d := range []map[string]json.RawMessage{delta("a", "1", "user:a", "1"), delta("user:a", "1", "app:a", "1"), nil} {
		_, err := store.UpdateState(t.Context(), memory.StateUpdate{Ref: ref, RequestID: unique("r"), Delta: d})
		requireMode(t, err, failure.UserInvalidInput)
	}
	require.NotContains(t, snapshot(t, store, ref).Values, "a")
}

func stateRefusesUserKeysOfNobody(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	_, err := store.UpdateState(t.Context(), changing(ref, "user:name", `"x"`))
	requireMode(t, err, failure.UserInvalidInput)
	c := answering(ref, turn, "hi", session.OutcomeCompleted)
	c.State = delta("user:name", `"x"`)
	_, err = store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.UserInvalidInput)
	require.Len(t, history(t, store, ref), 1)
}

func stateRefusesWhatIsNotJSON(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Created)
	for _, value := range []string{"good", "{", "1 2", `"` + strings.Repeat("a", memory.MaxStateValue) + `"`} {
		_, err := store.UpdateState(t.Context(), changing(ref, "mood", value))
		requireMode(t, err, failure.UserInvalidInput, "key", "mood")
	}
	require.Zero(t, snapshot(t, store, ref).Revisions[memory.ScopeSession])
}

func stateRefusesTooManyKeys(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Created)
	for n := 0; n < memory.MaxStateKeys; n += 250 {
		u := changing(ref, "key-0", "1")
		for i := n; i < n+250; i++ {
			u.Delta[fmt.Sprintf("key-%d", i)] = json.RawMessage("1")
		}
		change(t, store, u)
	}
	revision := snapshot(t, store, ref).Revisions[memory.ScopeSession]
	u := changing(ref, "more", "1")
	_, err := store.UpdateState(t.Context(), u)
	requireMode(t, err, failure.ResourceQuota)
	require.Equal(t, revision, snapshot(t, store, ref).Revisions[memory.ScopeSession])
	u.Delta["key-0"] = nil // makes room
	change(t, store, u)
	change(t, store, changing(ref, "more", "2"))
	require.Len(t, onlySession(snapshot(t, store, ref)), memory.MaxStateKeys)
}

func onlySession(s memory.Snapshot) map[string]json.RawMessage {
	own := map[string]json.RawMessage{}
	for key, value := range s.Values {
		if memory.ScopeOf(key) == memory.ScopeSession {
			own[key] = value
		}
	}
	return own
}

func stateRefusesTooManyBytes(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	const most = memory.MaxStateValue - 16
	big := `"` + strings.Repeat("a", most-2) + `"`
	full := changing(ref, "key-00", big)
	for i := range memory.MaxStateBytes / (most + len("key-00")) {
		full.Delta[fmt.Sprintf("key-%02d", i)] = json.RawMessage(big)
	}
	change(t, store, full)
	_, err := store.UpdateState(t.Context(), changing(ref, "more", big))
	requireMode(t, err, failure.ResourceQuota)
	c := answering(ref, turn, "hi", session.OutcomeCompleted)
	c.State = delta("more", big)
	_, err = store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.ResourceQuota)
	require.Len(t, history(t, store, ref), 1)
	change(t, store, changing(ref, "key-00", "1"))
	commit(t, store, c)
	require.Contains(t, snapshot(t, store, ref).Values, "more")
}

func stateRefusesUnknownSession(t *testing.T, store memory.Store) {
	ref := fresh()
	_, err := store.GetState(t.Context(), ref)
	requireMode(t, err, failure.NotFound, "session_id", ref.Session)
	for _, key := range []string{"mood", "app:mood"} {
		_, err = store.UpdateState(t.Context(), changing(ref, key, "1"))
		requireMode(t, err, failure.NotFound, "session_id", ref.Session)
	}
}

func stateKeysMayHoldAnything(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Created)
	u := changing(ref, "rev", "1")
	u.Delta = delta("rev", "1", "bytes", "2", "keys", "3", "v:x", "4", "ü {} \x00", "5", "user", "6", strings.Repeat("k", memory.MaxStateKey), "7")
	change(t, store, u)
	require.Equal(t, u.Delta, onlySession(snapshot(t, store, ref)))
	require.EqualValues(t, 1, snapshot(t, store, ref).Revisions[memory.ScopeSession])
}
