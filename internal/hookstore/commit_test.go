package hookstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// sharedCounterStore is a store with the key user:n, whose revision is its value. Another session increments the key before
// each of the first commits.
type sharedCounterStore struct {
	memory.State
	value, conflictsLeft, commits int
	commitErr                     error
}

func (s *sharedCounterStore) GetState(context.Context, session.Ref) (memory.Snapshot, error) {
	return memory.Snapshot{Values: map[string]json.RawMessage{"user:n": fmt.Append(nil, s.value)}, Keys: map[string]int64{"user:n": int64(s.value)}}, nil
}

func (s *sharedCounterStore) CommitStep(_ context.Context, c memory.Commit) (int64, error) {
	s.commits++
	if s.commitErr != nil {
		return 0, s.commitErr
	}
	if s.conflictsLeft > 0 {
		s.conflictsLeft--
		s.value++
	}
	if want, ok := c.Expected["user:n"]; ok && int(want) != s.value {
		return 0, failure.New(failure.RevisionMismatch, "test", "changed")
	}
	s.value, _ = strconv.Atoi(string(c.State["user:n"]))
	return 7, nil
}

// increment is a Rebase that increments the key.
func increment(values map[string]json.RawMessage, _ map[string]int64) (map[string]json.RawMessage, []string, error) {
	n, err := strconv.Atoi(string(values["user:n"]))
	return map[string]json.RawMessage{"user:n": fmt.Append(nil, n+1)}, nil, err
}

// set is a Rebase that sets the key to 6 whatever it was.
func set(map[string]json.RawMessage, map[string]int64) (map[string]json.RawMessage, []string, error) {
	return map[string]json.RawMessage{"user:n": json.RawMessage("6")}, []string{"user:n"}, nil
}

// Req: AD-18
func TestCommitStep_RepeatsUpdates(t *testing.T) {
	for name, c := range map[string]struct {
		expected    map[string]int64
		rebase      hookstore.Rebase
		now, others int
		want        string
		commits     int
		warnings    int
	}{
		"nobody else":                  {map[string]int64{"user:n": 5}, increment, 5, 0, "6", 1, 0},
		"conflicts":                    {map[string]int64{"user:n": 5}, increment, 5, 3, "9", 4, 0},
		"of an unread key":             {map[string]int64{"user:n": statechange.Unread}, increment, 8, 0, "9", 1, 0},
		"of an unread key, conflicts":  {map[string]int64{"user:n": statechange.Unread}, increment, 8, 2, "11", 3, 0},
		"set after a read":             {map[string]int64{"user:n": 5}, set, 5, 1, "6", 2, 1},
		"set without a read":           {nil, nil, 5, 1, "6", 1, 0},
		"more conflicts than attempts": {map[string]int64{"user:n": 5}, increment, 5, 1000, "", 201, 0},
	} {
		s, warnings := &sharedCounterStore{value: c.now, conflictsLeft: c.others}, 0
		state := map[string]json.RawMessage{"user:n": json.RawMessage("6"), "own": json.RawMessage("1")}
		last, stored, err := hookstore.CommitStep(t.Context(), s, memory.Commit{State: state, Expected: c.expected}, c.rebase, func(w event.Warning) {
			require.Equal(t, "STATE_OVERWRITTEN", w.Reason)
			require.Contains(t, w.Message, "user:n")
			warnings++
		})
		require.Equal(t, []int{c.commits, c.warnings}, []int{s.commits, warnings}, name)
		require.Equal(t, "6", string(state["user:n"]), "the caller's state is not changed")
		if c.want == "" {
			require.True(t, failure.Is(err, failure.RevisionMismatch), "%v", err)
			continue
		}
		require.NoError(t, err, name)
		require.EqualValues(t, 7, last)
		require.Equal(t, []string{c.want, "1"}, []string{string(stored["user:n"]), string(stored["own"])}, name)
	}
}

func TestCommitStep_ReturnsErrors(t *testing.T) {
	commit := memory.Commit{Expected: map[string]int64{"user:n": 5}}
	s := &sharedCounterStore{commitErr: failure.New(failure.Fenced, "test", "fenced")}
	_, _, err := hookstore.CommitStep(t.Context(), s, commit, increment, nil)
	require.True(t, failure.Is(err, failure.Fenced), "%v", err)

	wrong := func(map[string]json.RawMessage, map[string]int64) (map[string]json.RawMessage, []string, error) {
		return nil, nil, failure.New(failure.AgentLogic, "test", "oh")
	}
	_, _, err = hookstore.CommitStep(t.Context(), &sharedCounterStore{value: 5, conflictsLeft: 1}, commit, wrong, nil)
	require.True(t, failure.Is(err, failure.AgentLogic), "%v", err)
}
