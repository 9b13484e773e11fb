package lifecycle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Req: LC-4
func TestPause_WaitsForStepsAndResumeReopensAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newReadyInstance(t, Config{})
		_, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		paused := make(chan error)
		go func() { paused <- i.Pause(t.Context(), "maintenance") }()
		synctest.Wait()
		require.True(t, i.Status().Pausing)
		_, _, err = i.Admit(t.Context())
		require.True(t, failure.Is(err, failure.InstancePaused))

		end(nil)
		require.NoError(t, <-paused)
		require.Equal(t, Paused, i.Status().State)
		require.Equal(t, "maintenance", i.Status().Reason)
		require.NoError(t, i.Resume(t.Context(), ""))
		require.Equal(t, Ready, i.Status().State)
	})
}

func TestPause_ReopensAdmissionAfterItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newReadyInstance(t, Config{})
		_, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.True(t, failure.Is(i.Pause(ctx, ""), failure.AgentTimeout))
		_, other, err := i.Admit(t.Context())
		require.NoError(t, err)
		other(nil)
		end(nil)
	})
}

// Admission reopens only after the last waiting Pause has reached its deadline.
func TestPause_OutlivesTheDeadlineOfAnotherPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newReadyInstance(t, Config{})
		_, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		patient := make(chan error)
		go func() { patient <- i.Pause(t.Context(), "an upgrade") }()
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = i.Pause(hasty, "a look")
		require.True(t, failure.Is(err, failure.AgentTimeout), "%v", err)
		require.ErrorContains(t, err, "another Pause still waits")
		require.True(t, i.Status().Pausing)
		require.Equal(t, "an upgrade", i.Status().Reason, "a repeated verb changes nothing")
		_, _, err = i.Admit(t.Context())
		require.True(t, failure.Is(err, failure.InstancePaused), "%v", err)
		end(nil)
		require.NoError(t, <-patient)
		require.Equal(t, Paused, i.Status().State)
	})
}

// The result of a Pause is fixed when the last step ends, even if a Resume follows before the caller reads it.
func TestPause_SucceedsEvenIfResumedBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			i := newReadyInstance(t, Config{})
			_, end, err := i.Admit(t.Context())
			require.NoError(t, err)
			paused := make(chan error)
			go func() { paused <- i.Pause(t.Context(), "") }()
			synctest.Wait()
			end(nil)
			require.NoError(t, i.Resume(t.Context(), ""))
			require.NoError(t, <-paused)
		}
	})
}

// A Pause that a Resume withdrew stays withdrawn after the next Pause.
func TestPause_StaysWithdrawnAfterTheNextPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newReadyInstance(t, Config{})
		_, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- i.Pause(t.Context(), "") }()
		synctest.Wait()
		require.NoError(t, i.Resume(t.Context(), ""))
		go func() { second <- i.Pause(t.Context(), "") }()
		synctest.Wait()
		end(nil)
		require.True(t, failure.Is(<-first, failure.AgentState))
		require.NoError(t, <-second)
	})
}
