package desired

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
)

// fixedDesiredStates is a registry that delivers the same desired states once.
type fixedDesiredStates struct {
	registry.DesiredStates
	all map[registry.Key]registry.DesiredState
}

func (f fixedDesiredStates) WatchDesiredStates(_ context.Context, apply func(map[registry.Key]registry.DesiredState)) error {
	apply(f.all)
	return nil
}

// No instance may get steps until the desired states are known. A snapshot provides them first, and the registry
// then replaces what the snapshot provided.
func TestState_ComesFromTheSnapshotUntilTheRegistryAnswers(t *testing.T) {
	changes := 0
	s := New(func() { changes++ })
	key := registry.Key{Agent: "a", ID: "1"}
	quarantine := registry.DesiredState{Key: registry.AgentKey("a"), Kind: registry.Quarantine}
	s.RestoreQuarantines([]registry.DesiredState{quarantine})
	require.Zero(t, changes, "it is not awaited")

	s.WithholdUntilKnown()
	_, restriction := s.Lookup(key)
	require.Equal(t, StateUnknown, restriction)
	require.False(t, s.IsKnown())

	s.RestoreQuarantines([]registry.DesiredState{quarantine})
	_, restriction = s.Lookup(key)
	require.Equal(t, Quarantined, restriction)
	require.True(t, s.IsKnown())
	require.False(t, s.IsFromRegistry())
	require.Equal(t, 1, changes)

	pause := registry.DesiredState{Key: key, Kind: registry.Pause}
	require.NoError(t, s.Watch(t.Context(), fixedDesiredStates{all: map[registry.Key]registry.DesiredState{key: pause}}))
	want, restriction := s.Lookup(key)
	require.Equal(t, registry.Pause, want)
	require.Equal(t, Unrestricted, restriction)
	require.True(t, s.IsFromRegistry())
	require.Equal(t, 2, changes)
}
