package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// fakeStore is a Store with a fixed state.
type fakeStore struct {
	hook.Store
	state map[string]json.RawMessage
	reads int
	err   error

	revisions map[string]int64 // of shared keys

	source string // of untrusted words in the state
}

func (s *fakeStore) State(context.Context) (map[string]json.RawMessage, map[string]int64, string, error) {
	s.reads++
	return s.state, s.revisions, s.source, s.err
}

func (s *fakeStore) SaveArtifact(_ context.Context, name, _ string, content []byte) (int, error) {
	return len(content), s.err
}

func readValue(t *testing.T, m *hook.Memory, key string) string {
	t.Helper()
	var value string
	err := m.Read(t.Context(), key, &value)
	if errors.Is(err, hook.ErrNoKey) {
		require.True(t, failure.Is(err, failure.NotFound))
		return "none"
	}
	require.NoError(t, err)
	return value
}

// Req: AD-17, AD-18, AD-19
func TestMemory_ReadsItsChangesBeforeTheStore(t *testing.T) {
	s := &fakeStore{state: map[string]json.RawMessage{
		"topic": json.RawMessage(`"old"`), "app:theme": json.RawMessage(`"dark"`),
		"user:name": json.RawMessage(`"Ada"`),
	}}
	m := hook.NewMemory(s, "test")
	require.Equal(t, []string{"old", "dark", "Ada", "none", "none"},
		[]string{readValue(t, m, "topic"), readValue(t, m, "app:theme"), readValue(t, m, "user:name"), readValue(t, m, "temp:draft"), readValue(t, m, "other")})

	require.NoError(t, m.Set("topic", "new"))
	require.NoError(t, m.Set("app:theme", "light"))
	require.NoError(t, m.Set("temp:draft", "only now"))
	require.NoError(t, m.Delete("user:name"))
	require.Equal(t, []string{"new", "light", "none", "only now"},
		[]string{readValue(t, m, "topic"), readValue(t, m, "app:theme"), readValue(t, m, "user:name"), readValue(t, m, "temp:draft")})
	require.Equal(t, 1, s.reads, "it is read once a turn")
	require.JSONEq(t, `"old"`, string(s.state["topic"]), "the store changes with the step")

	c := hook.New(hook.Start{Memory: m})
	lasting := map[string]json.RawMessage{"topic": json.RawMessage(`"new"`), "app:theme": json.RawMessage(`"light"`), "user:name": nil}
	require.Equal(t, lasting, c.ChangesToStore(), "without what is the turn's own")
}

// Req: AD-6, AD-7, AD-18
func TestMemory_EmitsTheChangesOfAHandlerListAsOne(t *testing.T) {
	var emitted []event.Message
	set := func(key, value string) hook.Handler {
		return hook.BeforeAgent(func(_ context.Context, t *hook.Turn) (string, error) { return "", t.Memory().Set(key, value) })
	}
	handlers, err := hook.NewSet(nil, []hook.Handler{set("a", "1"), set("b", "2"), set("a", "3")})
	require.NoError(t, err)
	c := hook.New(hook.Start{Handlers: handlers, Memory: hook.NewMemory(&fakeStore{}, "test"), Emit: func(e event.Event) error {
		if m, ok := e.Payload.(event.Message); ok { // not the update of the artifact
			emitted = append(emitted, m)
		}
		return nil
	}})
	require.NoError(t, c.EmitChanges(""))
	require.Empty(t, emitted, "no change, no event")
	_, err = c.Handlers.BeforeAgent(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.EmitChanges(""))
	require.NoError(t, c.EmitChanges(""))
	require.Equal(t, []event.Message{{State: map[string]json.RawMessage{"a": json.RawMessage(`"3"`), "b": json.RawMessage(`"2"`)}}}, emitted)

	_, err = c.Turn().Memory().SaveArtifact(t.Context(), "report", "text/plain", []byte("four"))
	require.NoError(t, err)
	require.NoError(t, c.EmitChanges(""))
	require.Equal(t, event.Message{Artifacts: map[string]int{"report": 4}}, emitted[1])
}

// Req: AD-5a
func TestMemory_FailedHandlerListChangesNothing(t *testing.T) {
	fail := errors.New("oh")
	handlers, err := hook.NewSet(nil, []hook.Handler{
		hook.BeforeAgent(func(_ context.Context, t *hook.Turn) (string, error) { return "", t.Memory().Set("a", "2") }),
		hook.BeforeAgent(func(context.Context, *hook.Turn) (string, error) { return "", fail }),
	})
	require.NoError(t, err)
	m := hook.NewMemory(&fakeStore{}, "test")
	require.NoError(t, m.Set("a", "1"))
	c := hook.New(hook.Start{Handlers: handlers, Memory: m})
	_, err = c.Handlers.BeforeAgent(t.Context())
	require.ErrorIs(t, err, fail)
	require.Equal(t, "1", readValue(t, m, "a"))
}

// Req: SO-6, SO-7
func TestMemory_RejectsKeysOfOtherTiers(t *testing.T) {
	m := hook.NewMemory(&fakeStore{}, "researcher")
	for key, owner := range map[string]string{
		"_x": "agent", "_trace_id": "agent", "trace_id": "orchestrator", "routing": "orchestrator",
		"context": "orchestrator", "config": "shared",
	} {
		for _, err := range []error{m.Set(key, 1), m.Delete(key)} {
			refused, ok := errors.AsType[*failure.Error](err)
			require.True(t, ok, "%s: %v", key, err)
			require.Equal(t, failure.StateViolation, refused.Mode)
			require.Equal(t, map[string]string{"key": key, "owner": owner, "actor": "researcher"}, refused.Facts)
			require.Equal(t, `state "`+key+`" is owned by `+owner+`, but researcher attempted to modify it`, refused.Message)
		}
	}
	require.Nil(t, hook.New(hook.Start{Memory: m}).ChangesToStore())
	for _, key := range []string{"topic", "history", "facts", "app:x", "user:x", "temp:x"} {
		require.NoError(t, m.Set(key, 1), key)
	}
}

func TestMemory_ErrorNamesAnInvalidValue(t *testing.T) {
	m := hook.NewMemory(nil, "test")
	require.True(t, failure.Is(m.Set("a", func() {}), failure.UserInvalidInput))
	require.NoError(t, m.Set("a", []int{1}))
	var text string
	require.True(t, failure.Is(m.Read(t.Context(), "a", &text), failure.AgentLogic))
	_, err := m.SaveArtifact(t.Context(), "a", "text/plain", nil)
	require.True(t, failure.Is(err, failure.AgentState), "%v", err)
	_, _, err = m.LoadArtifact(t.Context(), "a", 0)
	require.True(t, failure.Is(err, failure.AgentState), "%v", err)
	found, err := m.Search(t.Context(), "a", 1)
	require.NoError(t, err)
	require.Empty(t, found)

	down := failure.New(failure.SystemNetwork, "test", "down")
	_, err = hook.NewMemory(&fakeStore{err: down}, "test").Get(t.Context(), "a")
	require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
}

// Memory returns copies, so a handler that modifies a returned value does not change the state.
func TestMemory_ReturnsCopies(t *testing.T) {
	s := &fakeStore{state: map[string]json.RawMessage{"a": json.RawMessage(`"old"`)}}
	m := hook.NewMemory(s, "test")
	require.NoError(t, m.Set("b", "new"))
	for _, key := range []string{"a", "b"} {
		value, err := m.Get(t.Context(), key)
		require.NoError(t, err)
		value[1] = 'X'
	}
	require.Equal(t, []string{"old", "new"}, []string{readValue(t, m, "a"), readValue(t, m, "b")})
}

// After one memory has read the state, all forks in the turn report the source of its untrusted text.
// Req: S14
func TestMemory_ReportsTheUntrustedSourceOfState(t *testing.T) {
	m := hook.NewMemory(&fakeStore{state: map[string]json.RawMessage{"topic": json.RawMessage(`"x"`)}, source: "tool page"}, "test")
	fork := m.Fork("other")
	require.Empty(t, m.Untrusted())
	require.Equal(t, "x", readValue(t, fork, "topic"))
	require.Equal(t, "tool page", fork.Untrusted())
	require.Equal(t, "tool page", m.Untrusted())
}

// Each concurrent agent sees the state from before the fork and its own changes. If two agents change a key, the
// last one to join wins.
func TestMemory_ForksAndJoins(t *testing.T) {
	s := &fakeStore{state: map[string]json.RawMessage{"stored": json.RawMessage(`"s"`)}}
	m := hook.NewMemory(s, "flow")
	require.NoError(t, m.Set("before", "b"))
	require.NoError(t, m.Set("gone", "g"))
	one, two := m.Fork("one"), m.Fork("two")
	var running sync.WaitGroup
	for name, f := range map[string]*hook.Memory{"one": one, "two": two} {
		running.Go(func() {
			_, _ = f.Get(t.Context(), "stored")
			_ = f.Set("both", name)
			_ = f.Set(name, name)
			_ = f.Delete("gone")
		})
	}
	running.Wait()
	require.Equal(t, []string{"s", "b", "one", "none", "none"},
		[]string{readValue(t, one, "stored"), readValue(t, one, "before"), readValue(t, one, "both"), readValue(t, one, "two"), readValue(t, one, "gone")})
	require.Equal(t, "none", readValue(t, m, "both"))
	require.NoError(t, m.Set("before", "later"))

	m.Join(two)
	m.Join(one)
	require.Equal(t, []string{"one", "one", "two", "none", "later"},
		[]string{readValue(t, m, "both"), readValue(t, m, "one"), readValue(t, m, "two"), readValue(t, m, "gone"), readValue(t, m, "before")})
	require.True(t, failure.Is(one.Set("_x", 1), failure.StateViolation))
}
