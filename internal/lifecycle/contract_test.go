package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// requireValidHistory requires that the transitions are complete and in order. It returns the states that they
// lead to.
func requireValidHistory(t *testing.T, i *Instance) (all []State) {
	t.Helper()
	transitions, status, _, err := i.Transitions(0)
	require.NoError(t, err)
	from := Uninitialized
	for n, tr := range transitions {
		require.Equal(t, from, tr.From)
		require.EqualValues(t, n+1, tr.Version, "no version is left out")
		from = tr.To
		all = append(all, tr.To)
	}
	require.Equal(t, status.State, from)
	require.EqualValues(t, len(all), status.Version)
	require.EqualValues(t, len(all), i.Metrics().StateTransitions)
	return all
}

// Req: LC-2, LC-6, LC-14, LC-25
func TestTransitions_AreNumberedTracedAndLegal(t *testing.T) {
	ctx := ContextWithCause(t.Context(), "0af7651916cd43dd8448eb211c80319c", "admin ops")
	i := New(Config{})
	require.NoError(t, i.Startup(ctx))
	_, end, err := i.Admit(ctx)
	require.NoError(t, err)
	end(nil)
	require.NoError(t, i.Pause(ctx, "lunch"))
	require.NoError(t, i.Resume(ctx, "back"))
	require.NoError(t, i.Shutdown(ctx, time.Second, "home"))
	require.Equal(t, []State{Initializing, Ready, Busy, Ready, Paused, Ready, ShuttingDown, Terminated}, requireValidHistory(t, i))
	transitions, _, _, err := i.Transitions(4)
	require.NoError(t, err)
	require.Len(t, transitions, 4)
	require.Equal(t, "lunch", transitions[0].Reason)
	all, _, _, _ := i.Transitions(0)
	for _, tr := range all {
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", tr.TraceID, "to %s", tr.To)
	}
}

func TestTransitions_RemembersMaxHistory(t *testing.T) {
	i := newReadyInstance(t, Config{})
	for range 2 * MaxHistory {
		_, end, err := i.Admit(t.Context())
		require.NoError(t, err)
		end(nil)
	}
	last := i.Status().Version
	latest, _, _, err := i.Transitions(last - MaxHistory)
	require.NoError(t, err)
	require.Len(t, latest, MaxHistory)
	require.Equal(t, last, latest[MaxHistory-1].Version)
	_, _, _, err = i.Transitions(last - MaxHistory - 1)
	require.True(t, failure.Is(err, failure.ResourceQuota), "%v", err)
	_, _, _, err = i.Transitions(last + 1)
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
}

// Req: LC-13, LC-24
func TestStartup_RetriesAfterStopFreedTheFailedTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for failures := range DefaultMaxRetries + 2 {
			tries, held := 0, 0
			i := New(Config{
				RetryOnFailure: true,
				Start: func(context.Context) error {
					require.Zero(t, held, "Stop freed the failed try")
					tries++
					held++
					if tries <= failures {
						return errors.New("not yet")
					}
					return nil
				},
				Stop: func(context.Context) error { held--; return nil },
			})
			err := i.Startup(t.Context())
			require.Equal(t, min(failures, DefaultMaxRetries)+1, tries)
			if failures <= DefaultMaxRetries {
				require.NoError(t, err)
				require.Equal(t, []State{Initializing, Ready}, requireValidHistory(t, i))
				require.Equal(t, 1, held)
				require.NoError(t, i.Shutdown(t.Context(), time.Second, ""))
			}
			require.Equal(t, Terminated, i.Status().State)
			require.Zero(t, held)
		}
		tries := 0
		i := New(Config{RetryOnFailure: true, Start: func(context.Context) error { tries++; return errors.New("once") }, Stop: func(context.Context) error {
			return errors.New("still there")
		}})
		require.ErrorContains(t, i.Startup(t.Context()), "once")
		require.Equal(t, 1, tries, "no try builds on resources that are half freed")
		require.Equal(t, Terminated, i.Status().State)

		tries = 0
		i = New(Config{Start: func(context.Context) error { tries++; return errors.New("never") }})
		require.Error(t, i.Startup(t.Context()))
		require.Equal(t, 1, tries, "no retry without RetryOnFailure")
	})
}

// Req: LC-12, LC-29d
func TestStartup_AllTriesEndWithinTheShorterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) error {
			select {
			case <-time.After(2 * time.Second):
				return errors.New("again")
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for callers, want := range map[time.Duration]time.Duration{time.Hour: 5 * time.Second, 3 * time.Second: 3 * time.Second} {
			i := New(Config{RetryOnFailure: true, MaxRetries: 100, StartupTimeout: 5 * time.Second, Start: slow})
			ctx, cancel := context.WithTimeout(t.Context(), callers)
			began := time.Now()
			err := i.Startup(ctx)
			cancel()
			require.True(t, failure.Is(err, failure.AgentTimeout), "%v", err)
			require.Equal(t, want, time.Since(began))
			synctest.Wait()
			require.Equal(t, Terminated, i.Status().State)
		}
	})
}

// Req: LC-11
func TestStartup_KeepFailedKeepsResourcesUntilShutdown(t *testing.T) {
	held := false
	i := New(Config{
		KeepFailed: true,
		Start:      func(context.Context) error { held = true; return errors.New("half way") },
		Stop:       func(context.Context) error { held = false; return nil },
	})
	require.Error(t, i.Startup(t.Context()))
	require.Error(t, i.Startup(t.Context()), "the start is not run again")
	require.Equal(t, Initializing, i.Status().State)
	require.True(t, held)
	_, _, err := i.Admit(t.Context())
	require.True(t, failure.Is(err, failure.AgentState), "%v", err)
	require.NoError(t, i.Shutdown(t.Context(), time.Second, ""))
	require.Equal(t, []State{Initializing, ShuttingDown, Terminated}, requireValidHistory(t, i))
	require.False(t, held)
}

// Req: LC-28, LC-39
func TestAdmit_OnlyFatalFailuresShutTheInstanceDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := failure.New(failure.ResourceTool, "test", "the device is gone")
		for why, want := range map[error]State{
			failure.New(failure.ResourceAPI, "test", ""): Ready, failure.New(failure.AgentLogic, "test", ""): Ready, errors.New("plain"): Ready, broken: Ready,
			failure.New(failure.AgentContract, "test", ""): Terminated, failure.New(failure.SystemCrash, "test", ""): Terminated,
			failure.New(failure.SystemOOM, "test", ""): Terminated,
			broken.Fatal(): Terminated, failure.New(failure.AgentLogic, "test", "").Because(fmt.Errorf("tool: %w", broken.Fatal())): Terminated,
		} {
			i := newReadyInstance(t, Config{})
			_, end, err := i.Admit(t.Context())
			require.NoError(t, err)
			end(why)
			_, next, err := i.Admit(t.Context()) // before the shutdown has finished
			if want == Terminated {
				require.True(t, failure.Is(err, failure.InstanceDraining), "%v", err)
			} else {
				require.NoError(t, err)
				next(nil)
			}
			synctest.Wait()
			require.Equal(t, want, i.Status().State, "%v", why)
			if want == Terminated {
				require.NotContains(t, requireValidHistory(t, i)[3:], Ready, "a broken process takes no step")
			}
			require.EqualValues(t, 1, i.Metrics().FailedRequests)
		}
	})
}

func TestAdmit_RejectsStepsWhileTheLeaseIsExpired(t *testing.T) {
	i := newReadyInstance(t, Config{})
	_, running, err := i.Admit(t.Context())
	require.NoError(t, err)
	for lease, admitted := range map[Lease]bool{LeaseNone: true, LeaseOK: true, LeaseUnknown: true, LeaseExpired: false} {
		i.SetLease(lease)
		require.Equal(t, lease, i.Status().Lease)
		_, end, err := i.Admit(t.Context())
		if admitted {
			require.NoError(t, err)
			end(nil)
		} else {
			require.True(t, failure.Is(err, failure.InstancePaused), "%v", err)
		}
	}
	require.Equal(t, Busy, i.Status().State, "running steps continue")
	running(nil)
	require.Equal(t, Ready, i.Status().State)
}

// Req: LC-19, LC-29c
func TestShutdown_EndsWithinDrainAndASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		hang := func(context.Context) error { <-forever; return nil }
		for _, drain := range []time.Duration{0, time.Second, 20 * time.Second} {
			i := newReadyInstance(t, Config{Leave: hang, Stop: hang})
			_, end, err := i.Admit(t.Context()) // a step that ignores its cancellation
			require.NoError(t, err)
			began := time.Now()
			require.Error(t, i.Shutdown(t.Context(), drain, ""))
			require.LessOrEqual(t, time.Since(began), drain+time.Second)
			require.Equal(t, Terminated, i.Status().State)
			end(nil)
			require.Equal(t, Terminated, i.Status().State, "the end of a step does not revive the instance")
		}
		close(forever)
	})
}

// Req: LC-12, LC-13, LC-36
func TestStartupWith_SettingsOfTheFirstCallReplaceTheConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		failing := Config{StartupTimeout: time.Hour, Start: func(context.Context) error { tries++; return errors.New("no") }}
		start := func(cfg Config, s Settings) *Instance {
			tries = 0
			i := New(cfg)
			require.Error(t, i.StartupWith(t.Context(), s))
			require.Error(t, i.StartupWith(t.Context(), Settings{MaxRetries: new(9)}), "later settings are ignored")
			return i
		}
		require.Equal(t, Terminated, start(failing, Settings{MaxRetries: new(2)}).Status().State)
		require.Equal(t, 3, tries)
		retrying := failing
		retrying.RetryOnFailure = true
		start(retrying, Settings{MaxRetries: new(0)})
		require.Equal(t, 1, tries)

		kept := start(failing, Settings{KeepFailed: new(true)})
		require.Equal(t, Initializing, kept.Status().State)
		require.NoError(t, kept.Shutdown(t.Context(), 0, ""))
		keeping := failing
		keeping.KeepFailed = true
		require.Equal(t, Terminated, start(keeping, Settings{KeepFailed: new(false)}).Status().State)

		began := time.Now()
		hanging := New(Config{Start: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		require.True(t, failure.Is(hanging.StartupWith(t.Context(), Settings{Timeout: 3 * time.Second}), failure.AgentTimeout))
		require.Equal(t, 3*time.Second, time.Since(began))

		require.True(t, hanging.KeepsState())
		dropping := New(Config{})
		require.NoError(t, dropping.StartupWith(t.Context(), Settings{DropState: new(true)}))
		require.False(t, dropping.KeepsState())
		require.NoError(t, dropping.Shutdown(t.Context(), 0, ""))
	})
}

// Req: LC-20
func TestShutdown_RepeatedIsQuiet(t *testing.T) {
	i := newReadyInstance(t, Config{Stop: func(context.Context) error { return errors.New("no") }})
	require.Error(t, i.Shutdown(t.Context(), 0, "once"))
	version := i.Status().Version
	require.NoError(t, i.Shutdown(t.Context(), 0, "twice"))
	require.Equal(t, version, i.Status().Version)
}

// Instances in one process do not affect each other, whatever state each is in.
//
// Req: LC-33
func TestInstances_AreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*Instance
		var running sync.WaitGroup
		for n := range 8 {
			fails := n%4 == 3
			i := New(Config{Start: func(context.Context) error {
				time.Sleep(time.Duration(n) * time.Second)
				if fails {
					return errors.New("no")
				}
				return nil
			}})
			all = append(all, i)
			running.Go(func() {
				if err := i.Startup(t.Context()); fails != (err != nil) {
					t.Errorf("instance %d: %v", n, err)
				}
			})
		}
		running.Wait()
		require.NoError(t, all[0].Pause(t.Context(), ""))
		require.NoError(t, all[1].Shutdown(t.Context(), 0, ""))
		_, end, err := all[2].Admit(t.Context())
		require.NoError(t, err)
		var states []State
		for _, i := range all {
			states = append(states, i.Status().State)
		}
		require.Equal(t, []State{Paused, Terminated, Busy, Terminated, Ready, Ready, Ready, Terminated}, states)
		end(nil)
	})
}
