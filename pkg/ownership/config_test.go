package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// fakeStore is a ConfigStore in memory. Load and Save return err if it is set.
type fakeStore struct {
	version int64
	values  map[string]json.RawMessage
	err     error
	saves   int
}

func (s *fakeStore) Load(_ context.Context, agent string) (int64, map[string]json.RawMessage, error) {
	if agent != "clerk" {
		return 0, nil, s.err
	}
	return s.version, maps.Clone(s.values), s.err
}

func (s *fakeStore) Save(_ context.Context, base int64, changes map[string]json.RawMessage) (int64, map[string]json.RawMessage, error) {
	s.saves++
	if s.err != nil {
		return 0, nil, s.err
	}
	if base != s.version {
		return 0, nil, failure.New(failure.RevisionMismatch, "test", "another was first")
	}
	s.version++
	for key, value := range changes {
		if len(value) == 0 {
			delete(s.values, key)
			continue
		}
		s.values[key] = value
	}
	return s.version, maps.Clone(s.values), nil
}

// Req: SO-11
func TestConfig_ChangesInRAMAndSavesAllAtOnce(t *testing.T) {
	store := &fakeStore{version: 3, values: map[string]json.RawMessage{"tone": json.RawMessage(`"kind"`), "old": json.RawMessage(`1`)}}
	c := NewConfig("clerk", Reject)
	require.True(t, failure.Is(c.Reload(t.Context()), failure.AgentState), "without a store nothing can be read")
	c.SetStore(store)
	require.NoError(t, c.Reload(t.Context()))
	require.NoError(t, c.Set("tone", "curt"))
	require.NoError(t, c.Delete("old"))
	require.Equal(t, []string{"tone"}, c.Keys())
	require.EqualValues(t, 3, c.Version())
	require.Zero(t, store.saves, "unsaved changes stay in this instance")

	require.NoError(t, c.Save(t.Context()))
	require.NoError(t, c.Save(t.Context()), "nothing is left to save")
	require.Equal(t, 1, store.saves)
	require.EqualValues(t, 4, c.Version())
	require.Equal(t, map[string]json.RawMessage{"tone": json.RawMessage(`"curt"`)}, store.values)
	values, err := c.LoadAgent(t.Context(), "another")
	require.NoError(t, err)
	require.Empty(t, values)
}

// Req: SO-11
func TestConfig_ConflictingChangesStayUntilReload(t *testing.T) {
	store := &fakeStore{version: 1, values: map[string]json.RawMessage{}}
	c := NewConfig("clerk", Reject)
	c.SetStore(store)
	require.NoError(t, c.Reload(t.Context()))
	store.version, store.values["tone"] = 2, json.RawMessage(`"theirs"`)
	require.NoError(t, c.Set("tone", "mine"))
	require.True(t, failure.Is(c.Save(t.Context()), failure.RevisionMismatch))
	value, ok := c.Get("tone")
	require.True(t, ok)
	require.JSONEq(t, `"mine"`, string(value))

	store.err = errors.New("away")
	require.ErrorIs(t, c.Reload(t.Context()), store.err)
	_, err := c.LoadAgent(t.Context(), "clerk")
	require.ErrorIs(t, err, store.err)
	store.err = nil
	require.NoError(t, c.Reload(t.Context()))
	value, _ = c.Get("tone")
	require.JSONEq(t, `"theirs"`, string(value))
}

// Req: SO-11
func TestConfig_RejectsWritesWithoutProtocol(t *testing.T) {
	var told []error
	c := NewConfig("clerk", "").WithRejectionHandler(func(err *failure.Error) { told = append(told, err) })
	for _, err := range []error{c.Set("tone", "kind"), c.Delete("tone")} {
		require.ErrorContains(t, err, `state "config" is owned by shared, but clerk attempted to modify it`)
	}
	require.Len(t, told, 2)
	require.Empty(t, c.Keys())
	require.Empty(t, c.Protocol())
	require.True(t, failure.Is(NewConfig("clerk", Merge).Set("tone", func() {}), failure.UserInvalidInput))
}
