package perkey_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/perkey"
)

func TestValues_DropTheLeastRecentlyUsed(t *testing.T) {
	state := ownership.NewAgentState("test", nil, nil)
	values := perkey.New[int]("_test")
	set := func(name string) { require.NoError(t, values.Update(state, name, func(n *int) { *n++ })) }
	set("first")
	set("second")
	for i := range perkey.MaxKeys - 2 {
		set(strconv.Itoa(i))
	}
	n, ok := values.Get(state, "first")
	require.True(t, ok)
	require.Equal(t, 1, n)

	set("one too many")
	_, ok = values.Get(state, "second")
	require.False(t, ok)
	_, ok = values.Get(state, "first")
	require.True(t, ok, "it was used since")
	require.Equal(t, []string{"_test"}, state.Keys())

	state.Clear()
	_, ok = values.Get(state, "first")
	require.False(t, ok)
}

func TestValues_AreSafeForConcurrentUse(t *testing.T) {
	state := ownership.NewAgentState("test", nil, nil)
	values := perkey.New[int]("_test")
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := values.Update(state, "one", func(n *int) { *n++ }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n, _ := values.Get(state, "one")
	require.Equal(t, 50, n)
}

func TestValues_BelongToOneAgent(t *testing.T) {
	err := perkey.New[int]("user:test").Update(ownership.NewAgentState("test", nil, nil), "one", func(*int) {})
	require.True(t, failure.Is(err, failure.StateViolation), "%v", err)
}
