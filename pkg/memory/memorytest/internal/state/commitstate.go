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

func commitStateTests() fixture.Tests {
	return fixture.Tests{
		"Commit_AppliesStateOfAllScopes":          commitAppliesStateOfAllScopes,
		"Commit_RepeatDoesNotChangeSharedScopes":  commitRepeatDoesNotChangeSharedScopes,
		"Commit_RejectedCommitChangesNoState":     commitRejectedCommitChangesNoState,
		"Commit_RejectsTheSameStepWithOtherState": commitRejectsTheSameStepWithOtherState,
		"Commit_RejectsInvalidState":              commitRejectsInvalidState,
		"Commit_RejectsTooMuchSharedState":        commitRejectsTooMuchSharedState,
	}
}

// Req: AD-18, AD-19
func commitAppliesStateOfAllScopes(t *testing.T, store memory.Store) {
	user, app := fixture.UniqueName("alice"), "app:"+fixture.UniqueName("theme")
	ref, other := newSessionOfUser(t, store, user), newSessionOfUser(t, store, user)
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	c := fixture.NewCommit(ref, begun.Turn, "one", session.OutcomeOpen)
	c.State = fixture.Delta("mood", "1", "user:name", "2", app, "3")
	fixture.CommitStep(t, store, c)

	// The changes are visible to the next step and to other sessions.
	s := fixture.GetState(t, store, ref)
	for key, value := range c.State {
		require.JSONEq(t, string(value), string(s.Values[key]), key)
	}
	require.EqualValues(t, 1, s.Revisions[memory.ScopeSession])
	require.EqualValues(t, 1, s.Revisions[memory.ScopeUser])
	shared := fixture.GetState(t, store, other).Values
	require.NotContains(t, shared, "mood")
	require.JSONEq(t, "2", string(shared["user:name"]))
	require.JSONEq(t, "3", string(shared[app]))

	last := fixture.NewCommit(ref, begun.Turn, "two", session.OutcomeCompleted)
	last.Base, last.Result.Step = 3-1, 2
	last.State = fixture.Delta("mood", "", "user:name", "")
	fixture.CommitStep(t, store, last)
	s = fixture.GetState(t, store, ref)
	require.NotContains(t, s.Values, "mood")
	require.NotContains(t, s.Values, "user:name")
	require.JSONEq(t, "3", string(s.Values[app]))
	require.EqualValues(t, 2, s.Revisions[memory.ScopeUser])
}

// commitRepeatDoesNotChangeSharedScopes repeats a commit after other sessions have changed the keys that the
// commit had set.
func commitRepeatDoesNotChangeSharedScopes(t *testing.T, store memory.Store) {
	user, app := fixture.UniqueName("alice"), "app:"+fixture.UniqueName("theme")
	ref := newSessionOfUser(t, store, user)
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	c := fixture.NewCommit(ref, begun.Turn, "one", session.OutcomeCompleted)
	keys := []string{"mood", "user:name", app}
	c.State = fixture.Delta(keys[0], "1", keys[1], "1", keys[2], "1")
	fixture.CommitStep(t, store, c)
	for _, key := range keys {
		fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, key, "2"))
	}
	for range 3 {
		fixture.CommitStep(t, store, c)
		s := fixture.GetState(t, store, ref)
		for _, key := range keys {
			require.JSONEq(t, "2", string(s.Values[key]), key)
		}
		require.EqualValues(t, 2, s.Revisions[memory.ScopeUser])
	}
}

func commitRejectedCommitChangesNoState(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	ref := newSessionOfUser(t, store, user)
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	before := fixture.ReadSession(t, store, ref)
	c := fixture.NewCommit(ref, begun.Turn, "one", session.OutcomeCompleted)
	c.State = fixture.Delta("mood", "1", "user:name", "1")
	c.Base = 7
	_, err = store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.BaseMismatch)
	c.Base, c.Epoch = 1, begun.Turn.Epoch+1
	_, err = store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.Fenced)
	require.Equal(t, before, fixture.ReadSession(t, store, ref))
}

func commitRejectsTheSameStepWithOtherState(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeOpen)
	c.State = fixture.Delta("mood", "1", "b", "2")
	fixture.CommitStep(t, store, c)
	fixture.CommitStep(t, store, c)
	for _, other := range []map[string]json.RawMessage{nil, fixture.Delta("mood", "2", "b", "2"), fixture.Delta("mood", "1")} {
		c.State = other
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	}
}

func commitRejectsInvalidState(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted)
	c.State = fixture.Delta("mood", "{")
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.UserInvalidInput, "key", "mood")
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

// commitRejectsTooMuchSharedState fills the shared scopes of a tenant that no other test uses.
func commitRejectsTooMuchSharedState(t *testing.T, store memory.Store) {
	ref, user := fixture.NewRef(), fixture.UniqueName("alice")
	ref.Tenant = fixture.UniqueName("tenant")
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	big := `"` + strings.Repeat("a", memory.MaxStateValueBytes-2) + `"`
	step, base := 0, begun.Turn.Sequence
	next := func(state map[string]json.RawMessage) memory.Commit {
		c := fixture.NewCommit(ref, begun.Turn, "on", session.OutcomeOpen)
		c.Base, c.Result.Step, c.State = base, step+1, state
		return c
	}
	for _, scope := range []string{"app:", "user:"} {
		full := fixture.Delta(scope+"0", big)
		for i := range memory.MaxStateBytes/memory.MaxStateValueBytes - 1 {
			full[fmt.Sprint(scope, i)] = json.RawMessage(big)
		}
		first := next(full)
		step, base = step+1, fixture.CommitStep(t, store, first)

		more := next(fixture.Delta("mood", "1", scope+"more", big))
		_, err := store.CommitStep(t.Context(), more)
		fixture.RequireMode(t, err, failure.ResourceQuota)
		require.NotContains(t, fixture.GetState(t, store, ref).Values, "mood", "it changed nothing at all")
		more.Epoch++
		_, err = store.CommitStep(t.Context(), more)
		fixture.RequireMode(t, err, failure.Fenced)
		fixture.CommitStep(t, store, first) // a repetition after the change was applied

		step, base = step+1, fixture.CommitStep(t, store, next(fixture.Delta(scope+"0", "", scope+"more", big)))
		left := fixture.GetState(t, store, ref).Values
		require.NotContains(t, left, scope+"0")
		require.Contains(t, left, scope+"more")
		many := map[string]json.RawMessage{}
		for i := range memory.MaxDeltaKeys {
			many[fmt.Sprint(scope, "key-", i)] = json.RawMessage("1")
		}
		_, err = store.CommitStep(t.Context(), next(many))
		require.NoError(t, err)
		step, base = step+1, base+1
	}
}
