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

func commitStateTests() tests {
	return tests{
		"Commit_AppliesStateOfAllScopes":      commitAppliesStateOfAllScopes,
		"Commit_OuterScopesOnce":              commitOuterScopesOnce,
		"Commit_RefusedChangesNoState":        commitRefusedChangesNoState,
		"Commit_OtherStateIsAnotherCommit":    commitOtherStateIsAnotherCommit,
		"Commit_RefusesStateThatCannotBeKept": commitRefusesStateThatCannotBeKept,
		"Commit_RefusesTooMuchSharedState":    commitRefusesTooMuchSharedState,
	}
}

// Req: AD-18, AD-19
func commitAppliesStateOfAllScopes(t *testing.T, store memory.Store) {
	user, app := unique("alice"), "app:"+unique("theme")
	ref, other := ofUser(t, store, user), ofUser(t, store, user)
	ask := asking(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	c := answering(ref, begun.Turn, "one", session.OutcomeOpen)
	c.State = delta("mood", "1", "user:name", "2", app, "3")
	commit(t, store, c)

	// The next step sees it, and so do other sessions.
	s := snapshot(t, store, ref)
	for key, value := range c.State {
		require.JSONEq(t, string(value), string(s.Values[key]), key)
	}
	require.EqualValues(t, 1, s.Revisions[memory.ScopeSession])
	require.EqualValues(t, 1, s.Revisions[memory.ScopeUser])
	shared := snapshot(t, store, other).Values
	require.NotContains(t, shared, "mood")
	require.JSONEq(t, "2", string(shared["user:name"]))
	require.JSONEq(t, "3", string(shared[app]))

	last := answering(ref, begun.Turn, "two", session.OutcomeCompleted)
	last.Base, last.Result.Step = 3-1, 2
	last.State = delta("mood", "", "user:name", "")
	commit(t, store, last)
	s = snapshot(t, store, ref)
	require.NotContains(t, s.Values, "mood")
	require.NotContains(t, s.Values, "user:name")
	require.JSONEq(t, "3", string(s.Values[app]))
	require.EqualValues(t, 2, s.Revisions[memory.ScopeUser])
}

// commitOuterScopesOnce repeats a commit after others changed what it had set.
func commitOuterScopesOnce(t *testing.T, store memory.Store) {
	user, app := unique("alice"), "app:"+unique("theme")
	ref := ofUser(t, store, user)
	ask := asking(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	c := answering(ref, begun.Turn, "one", session.OutcomeCompleted)
	keys := []string{"mood", "user:name", app}
	c.State = delta(keys[0], "1", keys[1], "1", keys[2], "1")
	commit(t, store, c)
	for _, key := range keys {
		change(t, store, changing(ref, key, "2"))
	}
	for range 3 {
		commit(t, store, c)
		s := snapshot(t, store, ref)
		for _, key := range keys {
			require.JSONEq(t, "2", string(s.Values[key]), key)
		}
		require.EqualValues(t, 2, s.Revisions[memory.ScopeUser])
	}
}

func commitRefusedChangesNoState(t *testing.T, store memory.Store) {
	user := unique("alice")
	ref := ofUser(t, store, user)
	ask := asking(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	before := visible(t, store, ref)
	c := answering(ref, begun.Turn, "one", session.OutcomeCompleted)
	c.State = delta("mood", "1", "user:name", "1")
	c.Base = 7
	_, err = store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.BaseMismatch)
	c.Base, c.Epoch = 1, begun.Turn.Epoch+1
	_, err = store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.Fenced)
	require.Equal(t, before, visible(t, store, ref))
}

func commitOtherStateIsAnotherCommit(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := answering(ref, turn, "one", session.OutcomeOpen)
	c.State = delta("mood", "1", "b", "2")
	commit(t, store, c)
	commit(t, store, c)
	for _, other := range []map[string]json.RawMessage{nil, delta("mood", "2", "b", "2"), delta("mood", "1")} {
		c.State = other
		_, err := store.CommitStep(t.Context(), c)
		requireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	}
}

func commitRefusesStateThatCannotBeKept(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := answering(ref, turn, "one", session.OutcomeCompleted)
	c.State = delta("mood", "{")
	_, err := store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.UserInvalidInput, "key", "mood")
	require.Len(t, history(t, store, ref), 1)
}

// commitRefusesTooMuchSharedState fills the scopes that sessions share, in a tenant of its own.
func commitRefusesTooMuchSharedState(t *testing.T, store memory.Store) {
	ref, user := fresh(), unique("alice")
	ref.Tenant = unique("tenant")
	ask := asking(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	big := `"` + strings.Repeat("a", memory.MaxStateValue-2) + `"`
	step, base := 0, begun.Turn.Sequence
	next := func(state map[string]json.RawMessage) memory.Commit {
		c := answering(ref, begun.Turn, "on", session.OutcomeOpen)
		c.Base, c.Result.Step, c.State = base, step+1, state
		return c
	}
	for _, scope := range []string{"app:", "user:"} {
		full := delta(scope+"0", big)
		for i := range memory.MaxStateBytes/memory.MaxStateValue - 1 {
			full[fmt.Sprint(scope, i)] = json.RawMessage(big)
		}
		first := next(full)
		step, base = step+1, commit(t, store, first)

		more := next(delta("mood", "1", scope+"more", big))
		_, err := store.CommitStep(t.Context(), more)
		requireMode(t, err, failure.ResourceQuota)
		require.NotContains(t, snapshot(t, store, ref).Values, "mood", "it changed nothing at all")
		more.Epoch++
		_, err = store.CommitStep(t.Context(), more)
		requireMode(t, err, failure.Fenced)
		commit(t, store, first) // it was made

		step, base = step+1, commit(t, store, next(delta(scope+"0", "", scope+"more", big)))
		left := snapshot(t, store, ref).Values
		require.NotContains(t, left, scope+"0")
		require.Contains(t, left, scope+"more")
		many := map[string]json.RawMessage{}
		for i := range memory.MaxDelta {
			many[fmt.Sprint(scope, "key-", i)] = json.RawMessage("1")
		}
		_, err = store.CommitStep(t.Context(), next(many))
		require.NoError(t, err)
		step, base = step+1, base+1
	}
}
