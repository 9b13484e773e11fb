package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func policy(t *testing.T, name string) Policy {
	t.Helper()
	p, err := ParsePolicy(name)
	require.NoError(t, err)
	return p
}

// countTries runs an operation that always fails under the policy. It returns the start time of each try.
func countTries(t *testing.T, p Policy, why error) (at []time.Duration, retries int, err error) {
	t.Helper()
	start := time.Now()
	retries, err = p.Do(t.Context(), func(context.Context) error {
		at = append(at, time.Since(start))
		return why
	})
	return at, retries, err
}

// Req: OC-25
func TestPolicy_RetriesAfterItsPauses(t *testing.T) {
	away := failure.New(failure.SystemNetwork, "op", "away")
	synctest.Test(t, func(t *testing.T) {
		at, retries, err := countTries(t, policy(t, "linear"), away)
		require.Equal(t, []time.Duration{0, 2 * time.Second, 4 * time.Second, 6 * time.Second}, at, "three retries after the first try")
		require.Equal(t, 3, retries)
		counted, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok)
		require.Equal(t, "3", counted.Facts["retry_count"])
		require.Equal(t, failure.SystemNetwork, counted.Mode)

		at, retries, _ = countTries(t, policy(t, "none"), away)
		require.Len(t, at, 1)
		require.Zero(t, retries)

		p := policy(t, "exponential")
		p.Retries = 9
		at, retries, _ = countTries(t, p, away)
		require.Equal(t, 9, retries)
		differ := false
		for i, want := range []float64{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			pause := (at[i+1] - at[i]).Seconds()
			require.InDelta(t, want, pause, want/10+1e-6, "retry %d", i+1)
			require.LessOrEqual(t, pause, 60.0)
			differ = differ || pause != want
		}
		require.True(t, differ, "the pauses are jittered")
		require.Equal(t, 3, policy(t, "exponential").Retries)
	})
	_, err := ParsePolicy("fibonacci")
	require.True(t, failure.Is(err, failure.UserInvalidInput))
	require.ErrorContains(t, err, `there is no retry policy "fibonacci"; use exponential, linear or none`)
	for _, name := range PolicyNames() {
		require.Equal(t, name, policy(t, name).Name)
	}
}

// Req: OC-25
func TestPolicy_NeverRetriesATerminalMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, "linear")
		for _, mode := range failure.Modes() {
			at, _, _ := countTries(t, p, fmt.Errorf("wrapped: %w", failure.New(mode, "op", "no")))
			require.Equal(t, mode.Retryable() && !mode.Terminal(), len(at) == 4, "%s", mode)
		}
		p.Modes = []failure.Mode{failure.ResourceQuota, failure.PolicyBudget} // one of them is terminal
		for mode, want := range map[failure.Mode]int{failure.ResourceQuota: 4, failure.PolicyBudget: 1, failure.SystemNetwork: 1} {
			at, _, _ := countTries(t, p, failure.New(mode, "op", "no"))
			require.Len(t, at, want, "%s", mode)
		}
		at, _, err := countTries(t, p, errors.New("unknown"))
		require.Len(t, at, 1)
		require.EqualError(t, err, "unknown")
	})
}

// Req: OC-25
func TestPolicy_StopsWaitingWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		start, count := time.Now(), 0
		retries, err := policy(t, "linear").Do(ctx, func(context.Context) error { count++; return failure.New(failure.ResourceAPI, "op", "down") })
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, 2, count)
		require.Equal(t, 1, retries)
		require.True(t, failure.Is(err, failure.ResourceAPI), "the last error, not the context's")

		retries, err = policy(t, "linear").Do(t.Context(), func(context.Context) error {
			if count++; count < 5 {
				return failure.New(failure.ResourceAPI, "op", "down")
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 2, retries)
	})
}
