package state

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func expectedTests() fixture.Tests {
	return fixture.Tests{
		"Expected_RejectsACommitIfAKeyWasChanged": expectedRejectsACommitIfAKeyWasChanged,
		"Expected_IgnoresOtherKeys":               expectedIgnoresOtherKeys,
		"Expected_DoesNotRejectARepeatedCommit":   expectedDoesNotRejectARepeatedCommit,
		"Expected_RejectsInvalidKeys":             expectedRejectsInvalidKeys,
		"Expected_LosesNoUpdate":                  expectedLosesNoUpdate,
	}
}

// beginTurnOfUser begins a turn in a new session of the user.
func beginTurnOfUser(t *testing.T, store memory.Store, user string) (session.Ref, session.Turn) {
	t.Helper()
	b := fixture.NewBegin(fixture.NewRef(), "t1", "hello")
	b.User = user
	begun, err := store.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	return b.Ref, begun.Turn
}

func expectedRejectsACommitIfAKeyWasChanged(t *testing.T, store memory.Store) {
	user, app := fixture.UniqueName("alice"), "app:"+fixture.UniqueName("n")
	ref, turn := beginTurnOfUser(t, store, user)
	other := newSessionOfUser(t, store, user)
	for _, key := range []string{"user:n", app} {
		require.Zero(t, fixture.GetState(t, store, ref).Keys[key])
		fixture.UpdateState(t, store, fixture.NewStateUpdate(other, key, "1"))
	}
	before := fixture.GetState(t, store, ref)
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted)
	for name, expected := range map[string]map[string]int64{
		"both":              {"user:n": 0, app: 0},
		"user:":             {"user:n": 0, app: before.Keys[app]},
		"app:":              {"user:n": before.Keys["user:n"], app: 0},
		"a later revision":  {"user:n": before.Keys["user:n"] + 1},
		"with another key":  {"user:n": 0},
		"only of the other": {app: 0},
	} {
		c.State, c.Expected = fixture.Delta("user:n", "2", app, "2", "mood", "2"), expected
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.RevisionMismatch, "keys")
		got := fixture.GetState(t, store, ref).Values
		require.Equal(t, []string{"1", "1", ""}, []string{string(got["user:n"]), string(got[app]), string(got["mood"])})
		require.Len(t, fixture.LoadHistory(t, store, ref), 1, name)
	}
	c.Expected = map[string]int64{"user:n": before.Keys["user:n"], app: before.Keys[app]}
	fixture.CommitStep(t, store, c)
	after := fixture.GetState(t, store, ref)
	require.Equal(t, []string{"2", "2"}, []string{string(after.Values["user:n"]), string(after.Values[app])})
	require.Greater(t, after.Keys["user:n"], before.Keys["user:n"])
	require.Greater(t, after.Keys[app], before.Keys[app])
	require.NotContains(t, after.Keys, "mood")

	fixture.UpdateState(t, store, fixture.NewStateUpdate(other, "user:n", ""))
	require.NotContains(t, fixture.GetState(t, store, ref).Keys, "user:n", "a key that does not exist has no revision")
}

func expectedIgnoresOtherKeys(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	ref, turn := beginTurnOfUser(t, store, user)
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "user:n", "1"))
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted)
	c.State, c.Expected = fixture.Delta("user:n", "2"), map[string]int64{"user:n": fixture.GetState(t, store, ref).Keys["user:n"]}
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "user:other", "1"))
	fixture.CommitStep(t, store, c)
	require.Equal(t, "2", string(fixture.GetState(t, store, ref).Values["user:n"]))
}

func expectedDoesNotRejectARepeatedCommit(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	ref, turn := beginTurnOfUser(t, store, user)
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted)
	c.State, c.Expected = fixture.Delta("user:n", "1"), map[string]int64{"user:n": 0}
	last := fixture.CommitStep(t, store, c)
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "user:n", "7"))
	require.Equal(t, last, fixture.CommitStep(t, store, c))
	require.Equal(t, "7", string(fixture.GetState(t, store, ref).Values["user:n"]))
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "user:n", "8"))
}

func expectedRejectsInvalidKeys(t *testing.T, store memory.Store) {
	ref, turn := beginTurnOfUser(t, store, fixture.UniqueName("alice"))
	for _, expected := range []map[string]int64{{"mood": 0}, {"user:m": 0}, {"user:n": -1}} {
		c := fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted)
		c.State, c.Expected = fixture.Delta("user:n", "1", "mood", "1"), expected
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
	}
}

// Several sessions of a user count in a key of each shared scope, and no count is lost.
// Req: AD-18, AD-19
func expectedLosesNoUpdate(t *testing.T, store memory.Store) {
	const sessions, steps = 4, 10
	user, app := fixture.UniqueName("alice"), "app:"+fixture.UniqueName("n")
	var running sync.WaitGroup
	for range sessions {
		ref, turn := beginTurnOfUser(t, store, user)
		running.Go(func() {
			for step := 1; step <= steps; step++ {
				c := fixture.NewCommit(ref, turn, fmt.Sprint(step), session.OutcomeOpen)
				c.Base, c.Result.Step = turn.Sequence, step
				for {
					s, err := store.GetState(t.Context(), ref)
					if err != nil {
						t.Errorf("GetState: %v", err)
						return
					}
					c.State, c.Expected = fixture.Delta(), map[string]int64{}
					for _, key := range []string{"user:n", app} {
						n, _ := strconv.Atoi(string(s.Values[key])) // 0 if the key does not exist
						c.State[key], c.Expected[key] = fmt.Append(nil, n+1), s.Keys[key]
					}
					turn.Sequence, err = store.CommitStep(t.Context(), c)
					if err == nil {
						break
					}
					if !failure.Is(err, failure.RevisionMismatch, failure.SystemNetwork) { // the latter after several attempts of the store
						t.Errorf("CommitStep: %v", err)
						return
					}
					turn.Sequence = c.Base
				}
			}
		})
	}
	running.Wait()
	s := fixture.GetState(t, store, newSessionOfUser(t, store, user))
	require.Equal(t, []string{fmt.Sprint(sessions * steps), fmt.Sprint(sessions * steps)}, []string{string(s.Values["user:n"]), string(s.Values[app])})
}
