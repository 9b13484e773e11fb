package telemetry

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/troupe-dev/troupe/internal/panics"
)

func TestPanics_ReportsTooManyWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPanics(metric.NewMeterProvider())
		var told atomic.Bool
		defer p.OnChange(told.Store)()
		one := panics.NewError("test", "boom")
		for range 4 {
			p.Record(t.Context(), one)
		}
		p.Record(t.Context(), errors.New("no panic"))
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.False(t, told.Load())
		p.Record(t.Context(), one)
		require.True(t, told.Load())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.False(t, told.Load(), "four of them are older than a minute")
		for range 4 {
			p.Record(t.Context(), one)
		}
		require.True(t, told.Load())
		(*Panics)(nil).Record(t.Context(), one)
		(*Panics)(nil).OnChange(func(tooMany bool) { require.False(t, tooMany) })()
	})
}
