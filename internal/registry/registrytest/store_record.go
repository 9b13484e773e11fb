package registrytest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
)

// RunStoreRecords runs the suite for registry.StoreRecords on empty records.
func RunStoreRecords(t *testing.T, records registry.StoreRecords) {
	t.Run("Load_OfNoRecord", func(t *testing.T) {
		r, revision, err := records.Load(t.Context(), "unknown")
		require.NoError(t, err)
		require.Zero(t, revision)
		require.Equal(t, registry.StoreRecord{}, r)
	})
	t.Run("Swap_NeedsTheRevision", func(t *testing.T) {
		first := registry.StoreRecord{Generation: 1, Beat: 7, Identity: "a"}
		swap := func(r registry.StoreRecord, revision int64) bool {
			done, err := records.Swap(t.Context(), "redis", r, revision)
			require.NoError(t, err)
			return done
		}
		require.False(t, swap(first, 1<<40), "no record exists")
		require.True(t, swap(first, 0))
		require.False(t, swap(first, 0), "a record exists")
		got, revision, err := records.Load(t.Context(), "redis")
		require.NoError(t, err)
		require.Equal(t, first, got)

		next := registry.StoreRecord{Generation: 2, Beat: 8, Identity: "b"}
		require.True(t, swap(next, revision))
		require.False(t, swap(first, revision), "the revision is old")
		got, _, err = records.Load(t.Context(), "redis")
		require.NoError(t, err)
		require.Equal(t, next, got)
	})
	t.Run("Swap_OneOfManyWins", func(t *testing.T) {
		won := make([]bool, 8)
		errs := make([]error, len(won))
		var writers sync.WaitGroup
		for i := range won {
			writers.Go(func() {
				won[i], errs[i] = records.Swap(t.Context(), "raced", registry.StoreRecord{Generation: int64(i)}, 0)
			})
		}
		writers.Wait()
		winners := 0
		for i := range won {
			require.NoError(t, errs[i])
			if won[i] {
				winners++
			}
		}
		require.Equal(t, 1, winners)
	})
}
