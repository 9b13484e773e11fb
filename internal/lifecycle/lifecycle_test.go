package lifecycle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// newReadyInstance returns an instance in state READY.
func newReadyInstance(t *testing.T, cfg Config) *Instance {
	t.Helper()
	i := New(cfg)
	require.NoError(t, i.Startup(t.Context()))
	return i
}

// Req: LC-1
func TestState_HasTheValuesOfTheContract(t *testing.T) {
	require.Equal(t, []State{"uninitialized", "initializing", "ready", "busy", "paused", "shutting_down", "terminated"},
		[]State{Uninitialized, Initializing, Ready, Busy, Paused, ShuttingDown, Terminated})
}

// Req: LC-24
func TestConfig_HasTheDefaultsOfTheContract(t *testing.T) {
	require.Equal(t, 30*time.Second, DefaultStartupTimeout)
	require.Equal(t, 3, DefaultMaxRetries)
	require.Equal(t, startConfig{timeout: 30 * time.Second}, Config{}.withDefaults().startConfig(Settings{}),
		"no retry, the failed start is cleaned up, and the state is persisted")
}

// Req: LC-1, LC-8, LC-25
func TestStartup_TakesANewInstanceToReadyOnce(t *testing.T) {
	runs := 0
	i := New(Config{Start: func(context.Context) error { runs++; return nil }})
	require.Equal(t, Uninitialized, i.Status().State)
	require.Zero(t, i.Metrics())

	require.NoError(t, i.Startup(t.Context()))
	require.NoError(t, i.Startup(t.Context()))
	require.Equal(t, Ready, i.Status().State)
	require.Equal(t, 1, runs)
	require.EqualValues(t, 2, i.Metrics().StateTransitions)
	require.Positive(t, i.Metrics().StartupTime)

	require.NoError(t, i.Shutdown(t.Context(), 0, "end"))
	require.Positive(t, i.Metrics().ShutdownTime)
	require.Greater(t, i.Metrics().StateTransitions, uint64(2))
}

// Req: LC-9
func TestStartup_ConcurrentCallersJoinOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		i := New(Config{Start: func(context.Context) error { runs++; time.Sleep(time.Second); return nil }})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := i.Startup(t.Context()); err != nil || i.Status().State != Ready {
					t.Errorf("Startup() = %v in %s", err, i.Status().State)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, runs)
	})
}

// Req: LC-10
func TestStartup_FailureReleasesAndTerminates(t *testing.T) {
	cause := errors.New("no database")
	stopped := false
	i := New(Config{
		Start: func(context.Context) error { return cause },
		Stop:  func(context.Context) error { stopped = true; return nil },
	})
	err := i.Startup(t.Context())
	require.ErrorIs(t, err, cause)
	require.Equal(t, failure.AgentLogic, failure.ModeOf(err))
	require.True(t, stopped)
	require.Equal(t, Terminated, i.Status().State)
	require.True(t, failure.Is(i.Startup(t.Context()), failure.AgentState))
}

// Req: LC-5, LC-12
func TestStartup_TimesOutWhileStatusStaysAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		i := New(Config{StartupTimeout: 5 * time.Second, Start: func(context.Context) error { <-release; return nil }})
		result := make(chan error)
		began := time.Now()
		go func() { result <- i.Startup(t.Context()) }()
		synctest.Wait()
		require.Equal(t, Initializing, i.Status().State)
		require.Zero(t, time.Since(began), "the status is there at once")

		err := <-result
		require.LessOrEqual(t, time.Since(began), 5*time.Second+hookGrace)
		require.True(t, failure.Is(err, failure.AgentTimeout), "%v", err)
		require.Equal(t, Terminated, i.Status().State)
		close(release)
	})
}

// A start continues if its first caller is cancelled. Only the deadline of that caller bounds the start (LC-12).
// Req: LC-9, LC-12
func TestStartup_ContinuesWithoutItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(Config{Start: func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan error)
		go func() { first <- i.Startup(ctx) }()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-first, context.Canceled)
		require.Equal(t, Initializing, i.Status().State)
		require.NoError(t, i.Startup(t.Context()), "other callers still join")
		require.Equal(t, Ready, i.Status().State)
	})
}

// Req: LC-3
func TestTerminated_IsFinal(t *testing.T) {
	i := newReadyInstance(t, Config{})
	require.NoError(t, i.Shutdown(t.Context(), 0, ""))
	require.True(t, failure.Is(i.Startup(t.Context()), failure.AgentState))
	require.True(t, failure.Is(i.Pause(t.Context(), ""), failure.AgentState))
	require.True(t, failure.Is(i.Resume(t.Context(), ""), failure.AgentState))
	_, _, err := i.Admit(t.Context())
	require.True(t, failure.Is(err, failure.InstanceDraining))
	require.Equal(t, Terminated, i.Status().State)
}

// Req: LC-27, LC-28, LC-29a
func TestAdmit_AdmitsAtMostCapacity(t *testing.T) {
	i := newReadyInstance(t, Config{Capacity: 3})
	var mu sync.Mutex
	var ends []func(error)
	var rejected int
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			_, end, err := i.Admit(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ends = append(ends, end)
			} else if failure.Is(err, failure.InstanceFull) {
				rejected++
			}
		})
	}
	wg.Wait()
	require.Len(t, ends, 3)
	require.Equal(t, 37, rejected)
	require.Equal(t, Busy, i.Status().State)
	for n, end := range ends {
		var err error
		if n == 0 {
			err = errors.New("failed")
		}
		end(err)
		end(err) // only the first call has an effect
	}
	require.Equal(t, Ready, i.Status().State)
	require.EqualValues(t, 3, i.Metrics().TotalRequests)
	require.EqualValues(t, 1, i.Metrics().FailedRequests)
}

// Req: LC-26
func TestAdmit_BeforeReadyReturnsTheRequiredStates(t *testing.T) {
	_, _, err := New(Config{}).Admit(t.Context())
	e, ok := errors.AsType[*failure.Error](err)
	require.True(t, ok)
	require.Equal(t, failure.AgentState, e.Mode)
	require.Equal(t, "uninitialized", e.Facts["actual_state"])
	require.Equal(t, "[ready busy]", e.Facts["required_state"])
}

// Req: LC-29b, LC-29c
func TestShutdown_DrainsThenCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		i := newReadyInstance(t, Config{
			Leave: func(context.Context) error { order = append(order, "leave"); return nil },
			Stop:  func(context.Context) error { order = append(order, "stop"); return nil },
		})
		_, quick, err := i.Admit(t.Context())
		require.NoError(t, err)
		ctx, slow, err := i.Admit(t.Context())
		require.NoError(t, err)
		go func() { time.Sleep(time.Second); quick(nil) }()
		go func() { <-ctx.Done(); slow(ctx.Err()) }()

		start := time.Now()
		require.ErrorContains(t, i.Shutdown(t.Context(), 10*time.Second, ""), "1 steps were cancelled")
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Equal(t, Terminated, i.Status().State)
		require.Equal(t, []string{"leave", "stop"}, order)
		require.Equal(t, []State{Initializing, Ready, Busy, ShuttingDown, Terminated}, requireValidHistory(t, i), "no step revives it")
	})
}

func TestShutdown_DrainingEndsWithTheLastStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		i := newReadyInstance(t, Config{Stop: func(context.Context) error { <-release; return nil }})
		_, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		ended := make(chan error)
		go func() { ended <- i.Shutdown(t.Context(), time.Hour, "") }()
		synctest.Wait()
		require.True(t, i.Status().Draining)
		end(nil)
		synctest.Wait()
		require.Equal(t, ShuttingDown, i.Status().State)
		require.False(t, i.Status().Draining, "no step is left")
		close(release)
		require.NoError(t, <-ended)
	})
}

// Each error of a shutdown is logged with its phase, even if no caller waits for the result.
// Req: LC-17
func TestShutdown_LogsEachErrorWithItsPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		i := newReadyInstance(t, Config{
			Leave:    func(context.Context) error { return errors.New("no etcd") },
			Stop:     func(context.Context) error { panic("oh") },
			LogError: func(phase string, err error) { logged = append(logged, phase+": "+err.Error()) },
		})
		ctx, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		context.AfterFunc(ctx, func() { end(ctx.Err()) })
		require.Error(t, i.Shutdown(t.Context(), time.Second, ""))
		require.Len(t, logged, 3)
		for n, want := range []string{"leave: no etcd", "drain: ", "stop: stop hook panic: oh"} {
			require.Contains(t, logged[n], want)
		}
	})
}

func TestStartup_LogsEachErrorWithItsPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		i := New(Config{
			RetryOnFailure: true, MaxRetries: 2,
			Start:    func(context.Context) error { return errors.New("no database") },
			LogError: func(phase string, err error) { logged = append(logged, phase+": "+err.Error()) },
		})
		require.Error(t, i.Startup(t.Context()))
		require.Equal(t, []string{"start: no database", "start: no database", "start: no database"}, logged)
	})
}

func TestShutdown_AShorterDrainShortensTheRunningShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newReadyInstance(t, Config{})
		ctx, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		go func() { <-ctx.Done(); end(ctx.Err()) }()
		start := time.Now()
		go func() { _ = i.Shutdown(t.Context(), time.Hour, "") }()
		synctest.Wait()
		_ = i.Shutdown(t.Context(), time.Second, "")
		require.Equal(t, time.Second, time.Since(start))
	})
}

// Req: LC-17, LC-18, LC-19
func TestShutdown_EndsWhenHooksPanicOrHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		i := newReadyInstance(t, Config{
			Leave: func(context.Context) error { panic("leave") },
			Stop:  func(context.Context) error { <-release; return nil },
		})
		began := time.Now()
		err := i.Shutdown(t.Context(), 0, "")
		require.LessOrEqual(t, time.Since(began), time.Second)
		require.ErrorContains(t, err, "panic: leave")
		require.ErrorContains(t, err, "abandoned")
		require.Equal(t, Terminated, i.Status().State)
		close(release)
	})
}

// Req: LC-20
func TestShutdown_ConcurrentCallersJoinOneShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stops := 0
		i := newReadyInstance(t, Config{Stop: func(context.Context) error { stops++; time.Sleep(time.Second); return errors.New("no") }})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := i.Shutdown(t.Context(), 5*time.Second, ""); err == nil || i.Status().State != Terminated {
					t.Errorf("Shutdown() = %v in %s", err, i.Status().State)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, stops)
	})
}

// Req: LC-20, LC-22
func TestShutdown_BeforeStartupReleasesNothing(t *testing.T) {
	stops := 0
	i := New(Config{Stop: func(context.Context) error { stops++; return nil }})
	require.NoError(t, i.Shutdown(t.Context(), 0, ""))
	require.NoError(t, i.Shutdown(t.Context(), 0, ""))
	require.Zero(t, stops)
	require.Equal(t, Terminated, i.Status().State)
}

func TestShutdown_DuringStartupCancelsItAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		i := New(Config{
			Start: func(ctx context.Context) error { <-ctx.Done(); order = append(order, "started"); return ctx.Err() },
			Stop:  func(context.Context) error { order = append(order, "stopped"); return nil },
		})
		result := make(chan error)
		go func() { result <- i.Startup(t.Context()) }()
		synctest.Wait()
		require.NoError(t, i.Shutdown(t.Context(), 0, ""))
		require.Error(t, <-result)
		require.Equal(t, []string{"started", "stopped"}, order)
		require.Equal(t, Terminated, i.Status().State)
	})
}
