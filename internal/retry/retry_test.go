package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestDo_RetriesUntilItSucceedsOrMustStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		got, err := Do(t.Context(), func(context.Context) (int, error) {
			if tries++; tries < 5 {
				return 0, failure.New(failure.SystemNetwork, "op", "away")
			}
			return tries, nil
		})
		require.NoError(t, err)
		require.Equal(t, 5, got)

		tries = 0
		_, err = Do(t.Context(), func(context.Context) (int, error) { tries++; return 0, failure.New(failure.NotFound, "op", "no") })
		require.True(t, failure.Is(err, failure.NotFound))
		require.Equal(t, 1, tries)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err = Do(ctx, func(context.Context) (int, error) { return 0, failure.New(failure.SystemNetwork, "op", "away") })
		require.True(t, failure.Is(err, failure.SystemNetwork), "the last error, not the context's")
		require.Equal(t, time.Minute, time.Since(start))
	})
}
