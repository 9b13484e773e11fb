package builtin_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
)

func TestCurrentTime_ReturnsTheTimeOfTheZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock of the bubble begins at midnight UTC, 1 January 2000
		clock, err := builtin.Catalog{}.Tool(builtin.CurrentTime, fetchSettings("{timeZone: Europe/Berlin}"))
		require.NoError(t, err)
		require.Equal(t, execution.Read, tool.EffectOf(clock))
		for args, want := range map[string]string{
			`{}`:                                "2000-01-01T01:00:00+01:00, Saturday, Europe/Berlin",
			`{"time_zone": "America/New_York"}`: "1999-12-31T19:00:00-05:00, Friday, America/New_York",
			`{"time_zone": "UTC"}`:              "2000-01-01T00:00:00Z, Saturday, UTC",
		} {
			result, err := clock.Call(t.Context(), json.RawMessage(args))
			require.NoError(t, err)
			require.Equal(t, want, result.Text)
		}
		for _, zone := range []string{"Berlin", "../../etc/passwd", "Local"} {
			_, err = clock.Call(t.Context(), json.RawMessage(`{"time_zone": "`+zone+`"}`))
			require.ErrorContains(t, err, "there is no time zone")
			require.True(t, failure.Is(err, failure.AgentValidation))
		}
	})
	_, err := builtin.Catalog{}.Tool(builtin.CurrentTime, fetchSettings("{timeZone: Berlin}"))
	require.ErrorContains(t, err, `with.timeZone: there is no time zone "Berlin"`)
}
