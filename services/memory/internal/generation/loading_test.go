package generation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/memory/internal/generation"
)

// loadingStore is a store whose first calls fail, as if Redis were still loading its data.
type loadingStore struct{ left int }

func (l *loadingStore) Identity(context.Context) (generation.Identity, error) {
	if l.left--; l.left >= 0 {
		return nil, failure.New(failure.SystemNetwork, "test", "it is loading")
	}
	return generation.Identity{"": "process"}, nil
}

func (l *loadingStore) Increment(context.Context, string, int64) (int64, error) { return 1, nil }
func (l *loadingStore) StoreMark(context.Context, generation.Mark) error        { return nil }
func (l *loadingStore) LoadMark(context.Context) (generation.Mark, error) {
	return generation.Mark{}, nil
}

// A store that has just started is checked again before the next tick. Until then no turn begins.
func TestGuard_ChecksALoadingStoreBeforeTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := generation.New(generation.Config{
			Records: inmem.NewStoreRecords(), Name: "redis", Interval: time.Hour, Log: zap.NewNop(), Metrics: noop.NewMeterProvider(),
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		began, known := time.Now(), make(chan time.Duration, 1)
		go func() {
			_ = guard.Run(ctx, &loadingStore{left: 3}, func() { known <- time.Since(began) })
		}()
		require.Less(t, <-known, 2*time.Second)
		stop()
		synctest.Wait()
	})
}
