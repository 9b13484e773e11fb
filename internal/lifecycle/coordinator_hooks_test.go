package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Req: LC-31, LC-35
func TestRunWith_ShutsDownHoweverBodyEnds(t *testing.T) {
	broken := errors.New("broken")
	for name, body := range map[string]func(context.Context) error{
		"no error": func(context.Context) error { return nil },
		"error":    func(context.Context) error { return broken },
	} {
		stopped := 0
		i := New(Config{Stop: func(context.Context) error { stopped++; return errors.New("the shutdown failed too") }})
		err := i.RunWith(t.Context(), body)
		require.Equal(t, name == "error", errors.Is(err, broken))
		require.ErrorContains(t, err, "the shutdown failed too")
		require.Equal(t, Terminated, i.Status().State)
		require.Equal(t, 1, stopped)
	}
	i := New(Config{})
	require.PanicsWithValue(t, "oh", func() { _ = i.RunWith(t.Context(), func(context.Context) error { panic("oh") }) })
	require.Equal(t, Terminated, i.Status().State)
	i = New(Config{Start: func(context.Context) error { return broken }})
	require.ErrorIs(t, i.RunWith(t.Context(), func(context.Context) error { t.Error("not started"); return nil }), broken)
	require.Equal(t, Terminated, i.Status().State)
	for name, cfg := range map[string]Config{
		"failed start with KeepFailed": {KeepFailed: true, Start: func(context.Context) error { return broken }},
		"caller is cancelled":          {Start: func(ctx context.Context) error { <-ctx.Done(); return broken }},
	} {
		ctx, leave := context.WithCancel(t.Context())
		i, used := New(cfg), make(chan error)
		go func() { used <- i.RunWith(ctx, func(context.Context) error { return nil }) }()
		leave()
		require.Error(t, <-used)
		require.Equal(t, Terminated, i.Status().State, "%s", name)
	}
}

// Req: LC-32, LC-33
func TestCoordinatorHooks_StartInOrderAndStopInReverse(t *testing.T) {
	for failing := range 4 {
		var order []string
		var managed []*Instance
		start, stop := CoordinatorHooks(func() []*Instance {
			for n := range 3 {
				managed = append(managed, New(Config{
					Start: func(context.Context) error {
						order = append(order, fmt.Sprint("start ", n))
						if n == failing {
							return errors.New("no")
						}
						return nil
					},
					Stop: func(context.Context) error { order = append(order, fmt.Sprint("stop ", n)); return nil },
				}))
			}
			return managed
		})
		coordinator := New(Config{Start: start, Stop: stop})
		require.NoError(t, stop(t.Context()), "nothing was started yet")
		err := coordinator.Startup(t.Context())
		require.Equal(t, failing < 3, err != nil)
		if err == nil {
			require.Equal(t, Ready, managed[2].Status().State)
			require.NoError(t, coordinator.Shutdown(t.Context(), time.Second, ""))
			require.Equal(t, []string{"start 0", "start 1", "start 2", "stop 2", "stop 1", "stop 0"}, order)
		}
		for _, i := range managed {
			require.Equal(t, Terminated, i.Status().State)
		}
	}
}

// Each try of the coordinator creates new instances, because a TERMINATED instance never starts again.
// Req: LC-13, LC-32
func TestCoordinatorHooks_CreateNewInstancesForEachTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*Instance
		start, stop := CoordinatorHooks(func() []*Instance {
			fine, failing := New(Config{}), New(Config{Start: func(context.Context) error {
				if len(all) < 4 {
					return errors.New("not yet")
				}
				return nil
			}})
			all = append(all, fine, failing)
			return []*Instance{fine, failing}
		})
		coordinator := New(Config{RetryOnFailure: true, MaxRetries: 1, Start: start, Stop: stop})
		require.NoError(t, coordinator.Startup(t.Context()))
		var states []State
		for _, i := range all {
			states = append(states, i.Status().State)
		}
		require.Equal(t, []State{Terminated, Terminated, Ready, Ready}, states)
		require.NoError(t, coordinator.Shutdown(t.Context(), time.Second, ""))
		require.Equal(t, Terminated, all[2].Status().State)
	})
}

// The managed instances drain within the time that their coordinator has.
// Req: LC-32
func TestCoordinatorHooks_PassOnTheDeadlineOfTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for drain, least := range map[time.Duration]time.Duration{20 * time.Second: 19 * time.Second, 0: 0} {
			var managed *Instance
			start, stop := CoordinatorHooks(func() []*Instance { managed = New(Config{}); return []*Instance{managed} })
			coordinator := newReadyInstance(t, Config{Start: start, Stop: stop})
			ctx, end, err := managed.Admit(t.Context())
			require.NoError(t, err)
			context.AfterFunc(ctx, func() { end(ctx.Err()) })
			began := time.Now()
			require.Error(t, coordinator.Shutdown(t.Context(), drain, ""), "a step was cancelled")
			require.GreaterOrEqual(t, time.Since(began), least)
			require.LessOrEqual(t, time.Since(began), drain+time.Second)
			require.Equal(t, Terminated, managed.Status().State)
		}
		var managed *Instance
		start, stop := CoordinatorHooks(func() []*Instance { managed = New(Config{}); return []*Instance{managed} })
		coordinator := newReadyInstance(t, Config{Start: start, Stop: stop})
		ctx, end, err := managed.Admit(t.Context())
		require.NoError(t, err)
		context.AfterFunc(ctx, func() { end(ctx.Err()) })
		go func() { _ = coordinator.Shutdown(t.Context(), time.Hour, "") }()
		time.Sleep(time.Minute) // time inside the synctest bubble
		began := time.Now()
		require.Error(t, coordinator.Shutdown(t.Context(), time.Second, "sooner"))
		require.LessOrEqual(t, time.Since(began), 2*time.Second, "a shorter deadline is passed on")
		require.Equal(t, Terminated, managed.Status().State)
	})
}
