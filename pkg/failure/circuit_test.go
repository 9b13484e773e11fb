package failure

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func attempt(t *testing.T, c *Circuit, v Verdict) {
	t.Helper()
	done, left := c.Try()
	require.NotNil(t, done, "it is open for %s", left)
	done(v)
}

func TestCircuit_OpensAfterThreeInARowAndThenTriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		c := NewCircuit(func(open bool) { told = append(told, open) })
		for _, v := range []Verdict{Broken, Broken, Works, Broken, Unclear, Broken} {
			attempt(t, c, v)
		}
		require.False(t, c.Open())
		require.False(t, c.Quiet())
		attempt(t, c, Broken)
		require.True(t, c.Open())

		time.Sleep(4 * time.Second)
		done, left := c.Try()
		require.Nil(t, done)
		require.Equal(t, 6*time.Second, left)

		time.Sleep(left + 1)
		require.False(t, c.Open())
		done, _ = c.Try()
		require.NotNil(t, done)
		require.True(t, c.Open(), "one try at a time")
		require.True(t, c.OnTrial())
		other, left := c.Try()
		require.Nil(t, other)
		require.Zero(t, left)
		done(Unclear)
		require.False(t, c.Open(), "it showed nothing, so another may try")
		require.False(t, c.OnTrial())
		attempt(t, c, Broken)
		require.True(t, c.Open())
		require.False(t, c.OnTrial())

		time.Sleep(CircuitPause + 1)
		attempt(t, c, Works)
		require.True(t, c.Quiet())
		require.Equal(t, []bool{true, true, false}, told)
	})
}

// What began before it opened says nothing of what is now.
func TestCircuit_DoesNotListenToThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCircuit(nil)
		late, _ := c.Try()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if done, _ := c.Try(); done != nil {
					done(Broken)
				}
			})
		}
		all.Wait()
		late(Works)
		require.True(t, c.Open())
	})
}

func BenchmarkCircuit(b *testing.B) {
	c := NewCircuit(nil)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			done, _ := c.Try()
			done(Works)
		}
	})
}
