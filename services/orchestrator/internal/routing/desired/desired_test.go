package desired

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
)

// fixedDesires is a registry that delivers the same desires once.
type fixedDesires struct {
	registry.Desires
	all map[registry.Key]registry.Desire
}

func (r fixedDesires) WatchDesires(_ context.Context, apply func(map[registry.Key]registry.Desire)) error {
	apply(r.all)
	return nil
}

// While the desired state is awaited, no instance may take steps. A snapshot ends that, and the registry
// replaces what the snapshot said.
func TestState_IsAwaitedThenTakenFromASnapshotThenWatched(t *testing.T) {
	changes := 0
	s := New(func() { changes++ })
	key := registry.Key{Agent: "a", ID: "1"}
	quarantine := registry.Desire{Key: registry.Whole("a"), Want: registry.Quarantine}
	s.Recover([]registry.Desire{quarantine})
	require.Zero(t, changes, "it is not awaited")

	s.Await()
	_, restriction := s.Lookup(key)
	require.Equal(t, StateUnknown, restriction)
	require.False(t, s.IsKnown())

	s.Recover([]registry.Desire{quarantine})
	_, restriction = s.Lookup(key)
	require.Equal(t, Quarantined, restriction)
	require.True(t, s.IsKnown())
	require.False(t, s.IsFromRegistry())
	require.Equal(t, 1, changes)

	pause := registry.Desire{Key: key, Want: registry.Pause}
	require.NoError(t, s.Watch(t.Context(), fixedDesires{all: map[registry.Key]registry.Desire{key: pause}}))
	want, restriction := s.Lookup(key)
	require.Equal(t, registry.Pause, want)
	require.Equal(t, Unrestricted, restriction)
	require.True(t, s.IsFromRegistry())
	require.Equal(t, 2, changes)
}
