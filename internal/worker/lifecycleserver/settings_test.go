package lifecycleserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Req: LC-36
func TestStartup_CarriesSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		start := func(settings *troupev1.LifecycleSettings) *lifecycle.Instance {
			tries = 0
			i := lifecycle.New(lifecycle.Config{RetryOnFailure: true, MaxRetries: 1, Start: func(context.Context) error { tries++; return errors.New("no") }})
			_, err := (&Server{Instance: i}).Startup(t.Context(), &troupev1.StartupRequest{Settings: settings})
			require.Error(t, err)
			return i
		}
		for name, c := range map[string]struct {
			settings *troupev1.LifecycleSettings
			tries    int
			state    lifecycle.State
			keeps    bool
		}{
			"none":       {nil, 2, lifecycle.Terminated, true},
			"empty":      {&troupev1.LifecycleSettings{}, 2, lifecycle.Terminated, true},
			"no retries": {&troupev1.LifecycleSettings{MaxRetries: new(int32(0))}, 1, lifecycle.Terminated, true},
			"retries":    {&troupev1.LifecycleSettings{MaxRetries: new(int32(3))}, 4, lifecycle.Terminated, true},
			"no cleanup": {&troupev1.LifecycleSettings{CleanupOnError: new(false)}, 2, lifecycle.Initializing, true},
			"cleanup":    {&troupev1.LifecycleSettings{CleanupOnError: new(true)}, 2, lifecycle.Terminated, true},
			"timeout":    {&troupev1.LifecycleSettings{Timeout: durationpb.New(time.Millisecond), MaxRetries: new(int32(9))}, 1, lifecycle.Terminated, true},
			"no state":   {&troupev1.LifecycleSettings{StatePersistence: troupev1.StatePersistence_STATE_PERSISTENCE_AGENT}, 2, lifecycle.Terminated, false},
			"state":      {&troupev1.LifecycleSettings{StatePersistence: troupev1.StatePersistence_STATE_PERSISTENCE_MEMORY}, 2, lifecycle.Terminated, true},
		} {
			i := start(c.settings)
			require.Equal(t, c.tries, tries, name)
			require.Equal(t, c.state, i.Status().State, name)
			require.Equal(t, c.keeps, i.KeepsState(), name)
			require.NoError(t, i.Shutdown(t.Context(), 0, ""))
		}
	})
}
