package breakers

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/breaker"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Three failures in a row open the breaker of an instance. After a pause, one step is allowed as a trial.
// Req: OC-34
func TestBreakers_OpenAfterThreeFailuresAndCloseAfterATrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, in, lost := New(zap.NewNop()), registry.Instance{Agent: "a", ID: "1", Incarnation: 7}, errors.New("lost")
		who := instances.IncarnationOf(in)
		for range breaker.MaxFailures {
			require.NotEqual(t, Open, b.Failures("a")[who].Status)
			time.Sleep(time.Millisecond)
			b.Allow(in)(breaker.Failure, lost)
		}
		require.Equal(t, InstanceFailure{Open, lost}, b.Failures("a")[who])
		require.Nil(t, b.Allow(in))
		require.Empty(t, b.Failures("b"))
		anew := in
		anew.Incarnation++
		require.NotNil(t, b.Allow(anew), "a new process may work")

		time.Sleep(breaker.OpenDuration + time.Millisecond)
		trial := b.Allow(in)
		require.NotNil(t, trial)
		require.Equal(t, InTrial, b.Failures("a")[who].Status)
		require.Nil(t, b.Allow(in), "one step at a time")
		trial(breaker.Success, nil)
		require.Empty(t, b.Failures("a"))
	})
}

// A failure that was not followed by another one is removed after a while. The removal happens when another
// instance fails.
func TestBreakers_DropOldFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(zap.NewNop())
		b.Allow(registry.Instance{Agent: "a", ID: "1"})(breaker.Failure, errors.New("lost"))
		time.Sleep(forgetAfter + time.Second)
		b.Allow(registry.Instance{Agent: "a", ID: "2"})(breaker.Failure, errors.New("lost"))
		require.Len(t, b.Failures("a"), 1)
	})
}
