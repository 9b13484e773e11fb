package breaker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func callOnce(t *testing.T, b *Breaker, r Result) {
	t.Helper()
	done, wait := b.Try()
	require.NotNil(t, done, "it is open for %s", wait)
	done(r)
}

func TestBreaker_OpensAfterThreeFailuresInARowAndThenAllowsOneTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []bool
		b := New(func(open bool) { changes = append(changes, open) })
		for _, r := range []Result{Failure, Failure, Success, Failure, Inconclusive, Failure} {
			callOnce(t, b, r)
		}
		require.False(t, b.IsOpen())
		require.False(t, b.IsHealthy())
		callOnce(t, b, Failure)
		require.True(t, b.IsOpen())

		time.Sleep(4 * time.Second)
		done, wait := b.Try()
		require.Nil(t, done)
		require.Equal(t, 6*time.Second, wait)

		time.Sleep(wait + 1)
		require.False(t, b.IsOpen())
		done, _ = b.Try()
		require.NotNil(t, done)
		require.True(t, b.IsOpen(), "one trial at a time")
		require.True(t, b.IsTrialRunning())
		other, wait := b.Try()
		require.Nil(t, other)
		require.Zero(t, wait)
		done(Inconclusive)
		require.False(t, b.IsOpen(), "the trial showed nothing, so another one may run")
		require.False(t, b.IsTrialRunning())
		callOnce(t, b, Failure)
		require.True(t, b.IsOpen())
		require.False(t, b.IsTrialRunning())

		time.Sleep(OpenDuration + 1)
		callOnce(t, b, Success)
		require.True(t, b.IsHealthy())
		require.Equal(t, []bool{true, true, false}, changes)
	})
}

// A success of a call that began before the breaker opened does not close the breaker.
func TestBreaker_IgnoresCallsThatBeganBeforeItOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		late, _ := b.Try()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if done, _ := b.Try(); done != nil {
					done(Failure)
				}
			})
		}
		all.Wait()
		late(Success)
		require.True(t, b.IsOpen())
	})
}

func BenchmarkBreaker(b *testing.B) {
	breaker := New(nil)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			done, _ := breaker.Try()
			done(Success)
		}
	})
}
