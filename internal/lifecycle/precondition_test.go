package lifecycle

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// A verb for another version fails and changes nothing. Of two callers that have read the same status, one acts.
func TestContextIfVersion_BindsAVerbToAStatus(t *testing.T) {
	i := New(Config{})
	for _, verb := range []struct {
		name string
		call func(context.Context) error
		left State
	}{
		{"Startup", i.Startup, Ready},
		{"Pause", func(ctx context.Context) error { return i.Pause(ctx, "") }, Paused},
		{"Resume", func(ctx context.Context) error { return i.Resume(ctx, "") }, Ready},
		{"Shutdown", func(ctx context.Context) error { return i.Shutdown(ctx, 0, "") }, Terminated},
	} {
		before := i.Status()
		err := verb.call(ContextIfVersion(t.Context(), before.Version+1))
		require.True(t, failure.Is(err, failure.AgentState), "%s: %v", verb.name, err)
		require.ErrorContains(t, err, "read its state and decide again")
		require.Equal(t, before, i.Status(), verb.name)
		require.NoError(t, verb.call(ContextIfVersion(t.Context(), before.Version)), verb.name)
		require.Equal(t, verb.left, i.Status().State)
		err = verb.call(ContextIfVersion(t.Context(), before.Version))
		require.True(t, failure.Is(err, failure.AgentState), "%s, repeated: %v", verb.name, err)
	}
}
