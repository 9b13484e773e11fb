package instancewire_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
)

func TestInstance_RoundTripsInEveryState(t *testing.T) {
	states := []lifecycle.State{
		lifecycle.Uninitialized, lifecycle.Initializing, lifecycle.Ready, lifecycle.Busy,
		lifecycle.Paused, lifecycle.ShuttingDown, lifecycle.Terminated,
	}
	for _, s := range states {
		want := registry.Instance{
			ID: "research-1", Agent: "research", Address: "10.0.0.7:7402", Version: "1.2.0",
			Description: "Finds facts.", State: s, Capacity: 16, Incarnation: 42,
			Started: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC), Capabilities: []string{"gpu"},
			Tools: []registry.Tool{{Name: "search", Capabilities: []string{"docs", "web"}}, {Name: "clock"}},
		}
		require.True(t, want.Equal(want))
		other := want
		other.Tools = []registry.Tool{{Name: "search", Capabilities: []string{"docs"}}, {Name: "clock"}}
		require.False(t, want.Equal(other))
		value, err := instancewire.MarshalInstance(want)
		require.NoError(t, err)
		got, err := instancewire.UnmarshalInstance([]byte(value))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got))
	}
}

func TestInstance_ZeroRoundTrips(t *testing.T) {
	require.Empty(t, cmp.Diff(registry.Instance{}, instancewire.InstanceFromProto(instancewire.InstanceToProto(registry.Instance{}))))
}

func TestUnmarshalInstance_IgnoresUnknownFields(t *testing.T) {
	got, err := instancewire.UnmarshalInstance([]byte(`{"instanceId":"a","agent":"b","state":"INSTANCE_STATE_DREAMING","zone":"x"}`))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(registry.Instance{ID: "a", Agent: "b"}, got))
}

func TestUnmarshalInstance_RejectsInvalidInput(t *testing.T) {
	_, err := instancewire.UnmarshalInstance([]byte(`{"instanceId":7`))
	require.ErrorContains(t, err, "stored instance")
}
