package hook_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

func jsonValue(t *testing.T, m *hook.Memory, key string) string {
	t.Helper()
	value, err := m.Get(t.Context(), key)
	if errors.Is(err, hook.ErrNoKey) {
		return ""
	}
	require.NoError(t, err)
	return string(value)
}

// valueAfterRebase returns the value of user:n after the turn repeats its change on a value that another session has
// stored.
func valueAfterRebase(t *testing.T, c *hook.Control, value string) string {
	t.Helper()
	_, rebase := c.ExpectedRevisions()
	state, overwritten, err := rebase(map[string]json.RawMessage{"user:n": json.RawMessage(value)}, map[string]int64{"user:n": 9})
	require.NoError(t, err)
	require.Empty(t, overwritten)
	return string(state["user:n"])
}

func newStoredMemory(pairs ...string) *hook.Memory {
	s := &fakeStore{state: map[string]json.RawMessage{}, revisions: map[string]int64{}}
	for i := 0; i < len(pairs); i += 2 {
		s.state[pairs[i]], s.revisions[pairs[i]] = json.RawMessage(pairs[i+1]), 4
	}
	return hook.NewMemory(s, "test")
}

// Req: AD-18, AD-19
func TestMemory_Updates(t *testing.T) {
	m := newStoredMemory("user:n", "5", "user:tags", `["b"]`, "user:prefs", `{"a":{"x":1,"y":1},"b":1}`)
	ctx := t.Context()
	n, err := m.Increment(ctx, "user:n", 2)
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	require.NoError(t, m.AddToSet(ctx, "user:tags", "c", "a", "b"))
	require.NoError(t, m.RemoveFromSet(ctx, "user:tags", "c", "z"))
	require.NoError(t, m.Patch(ctx, "user:prefs", map[string]any{"a": map[string]any{"x": 2, "y": nil}, "c": []int{1}}))
	require.NoError(t, m.Update(ctx, "new", func(old json.RawMessage) (any, error) { return len(old), nil }))
	require.NoError(t, m.Set("gone", 1))
	require.NoError(t, m.Update(ctx, "gone", func(json.RawMessage) (any, error) { return nil, nil }))
	require.Equal(t, []string{"7", `["a","b"]`, `{"a":{"x":2},"b":1,"c":[1]}`, "0", ""}, []string{
		jsonValue(t, m, "user:n"), jsonValue(t, m, "user:tags"), jsonValue(t, m, "user:prefs"), jsonValue(t, m, "new"), jsonValue(t, m, "gone"),
	})

	c := hook.New(hook.Start{Memory: m})
	expected, _ := c.ExpectedRevisions()
	require.Equal(t, map[string]int64{"user:n": 4, "user:tags": 4, "user:prefs": 4}, expected, "no other session changes the other keys")
	require.Equal(t, "102", valueAfterRebase(t, c, "100"))
}

func TestMemory_RejectsInvalidUpdates(t *testing.T) {
	m := newStoredMemory("user:n", `"text"`, "user:max", "9223372036854775807")
	ctx := t.Context()
	for name, c := range map[string]struct {
		err  func() error
		mode failure.Mode
	}{
		"no integer":   {func() error { _, err := m.Increment(ctx, "user:n", 1); return err }, failure.UserInvalidInput},
		"too large":    {func() error { _, err := m.Increment(ctx, "user:max", 1); return err }, failure.UserInvalidInput},
		"no set":       {func() error { return m.AddToSet(ctx, "user:n", "a") }, failure.UserInvalidInput},
		"no object":    {func() error { return m.Patch(ctx, "user:n", struct{}{}) }, failure.UserInvalidInput},
		"no patch":     {func() error { return m.Patch(ctx, "user:x", 1) }, failure.UserInvalidInput},
		"no JSON":      {func() error { return m.Patch(ctx, "user:x", func() {}) }, failure.UserInvalidInput},
		"another tier": {func() error { _, err := m.Increment(ctx, "_n", 1); return err }, failure.StateViolation},
		"a failed update": {func() error {
			return m.Update(ctx, "user:x", func(json.RawMessage) (any, error) { return nil, errors.New("oh") })
		}, failure.AgentLogic},
		"an update that sets its key": {func() error {
			n, other := 0, newStoredMemory()
			return other.Update(ctx, "user:n", func(json.RawMessage) (any, error) { n++; return n, other.Set("user:n", n) })
		}, failure.AgentLogic},
		"an invalid value": {func() error {
			return m.Update(ctx, "user:x", func(json.RawMessage) (any, error) { return func() {}, nil })
		}, failure.UserInvalidInput},
	} {
		err := c.err()
		require.Equal(t, c.mode, failure.ModeOf(err), "%s: %v", name, err)
	}
	require.Nil(t, hook.New(hook.Start{Memory: m}).ChangesToStore())
}

// Tools that run at the same time lose no update of each other. Objects that they set are merged key by key, and of
// everything else the last one to join wins.
//
// Req: AD-36
func TestMemory_JoinMergesForks(t *testing.T) {
	m := newStoredMemory("user:n", "5", "own", "5", "prefs", `{"a":1}`, "name", `"old"`)
	one, two := m.Fork("one"), m.Fork("two")
	var running sync.WaitGroup
	for name, fork := range map[string]*hook.Memory{"one": one, "two": two} {
		running.Go(func() {
			for _, key := range []string{"user:n", "own", "fresh"} {
				_, _ = fork.Increment(t.Context(), key, 1)
			}
			_ = fork.Set("prefs", map[string]any{"a": 1, name: true})
			_ = fork.Set("name", name)
		})
	}
	running.Wait()
	c := hook.New(hook.Start{Memory: m})
	require.Empty(t, c.Absorb(one))
	require.Equal(t, []string{"name"}, c.Absorb(two))
	require.Equal(t, []string{"7", "7", "2", `{"a":1,"one":true,"two":true}`, `"two"`}, []string{
		jsonValue(t, m, "user:n"), jsonValue(t, m, "own"), jsonValue(t, m, "fresh"), jsonValue(t, m, "prefs"), jsonValue(t, m, "name"),
	})
	require.Equal(t, "102", valueAfterRebase(t, c, "100"))
}

// A successor applies the updates that the journal recorded to the values that it finds, and each of them once: also
// if a handler that runs again makes its own a second time.
func TestMemory_ReappliesUpdatesOfTheJournal(t *testing.T) {
	m := newStoredMemory("user:n", "5")
	first := hook.New(hook.Start{Memory: m})
	handler := func(m *hook.Memory) {
		_, err := m.Increment(t.Context(), "user:n", 1)
		require.NoError(t, err)
	}
	handler(m)
	fork := m.Fork("test")
	_, err := fork.Increment(t.Context(), "user:n", 10)
	require.NoError(t, err)
	first.Absorb(fork)
	set, removed, bases := first.TakeUnjournaled()
	require.Equal(t, map[string]json.RawMessage{"user:n": json.RawMessage("16")}, set)
	require.Equal(t, map[string]json.RawMessage{"user:n": json.RawMessage("5")}, bases)
	again, _, _ := first.TakeUnjournaled()
	require.Empty(t, again)

	for name, containsHandler := range map[string]bool{"with the handler's": true, "only the tool's": false} {
		set, removed, bases := set, removed, bases
		if !containsHandler {
			set, removed, bases = first.ChangesOf(fork)
		}
		successor := newStoredMemory("user:n", "50")
		c := hook.New(hook.Start{Memory: successor})
		handler(successor)
		c.Reapply(set, removed, bases, containsHandler)
		handler(successor)
		expected, _ := c.ExpectedRevisions()
		require.EqualValues(t, -1, expected["user:n"], name)
		require.Equal(t, "62", valueAfterRebase(t, c, "50"), name)
	}
}

// An update may read other keys of the memory.
func TestMemory_UpdateMayRead(t *testing.T) {
	m := newStoredMemory("user:n", "5", "user:step", "3")
	require.NoError(t, m.Update(t.Context(), "user:n", func(json.RawMessage) (any, error) {
		var step int
		err := m.Read(t.Context(), "user:step", &step)
		return 5 + step, err
	}))
	require.Equal(t, "8", jsonValue(t, m, "user:n"))
}

// Goroutines of one tool lose no update of each other.
func TestMemory_UpdatesOfGoroutines(t *testing.T) {
	m := newStoredMemory("user:n", "5")
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 20 {
				if _, err := m.Increment(t.Context(), "user:n", 1); err != nil {
					t.Errorf("Increment: %v", err)
				}
			}
		})
	}
	running.Wait()
	require.Equal(t, "165", jsonValue(t, m, "user:n"))
}
