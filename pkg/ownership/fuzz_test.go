package ownership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every key has an owner, and an agent can change only keys that it owns.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{
		"", "_", "_x", "temp:", "temp:x", "app:x", "user:x", "history", "History", "config", "trace_id", "routing", " routing",
		"context\x00", "\xff",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		owner, _ := OwnerOf(key)
		require.NotEmpty(t, owner)
		state := NewAgentState("agent", nil, func(string) {})
		err := state.Set(key, 1)
		_, there := state.Get(key)
		require.Equal(t, err == nil, there)
		require.Equal(t, err == nil, owner == Agent, "%q is of %s", key, owner)
	})
}
