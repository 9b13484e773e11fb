package operate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/loopback"
)

// The desired state, its record in the registry and the state of the worker can disagree after a failure. These
// tests check that a healthy instance then still gets steps.

var key = registry.Key{Agent: "research", ID: "a"}

// getsSteps reports whether an instance gets steps according to both its desired state and routing.
func (o *operatorFixture) getsSteps(t *testing.T, of registry.Key) bool {
	t.Helper()
	want := o.recordedState(t, of.Agent, of.ID).Kind
	return want.AllowsSteps() && o.routableIDs(of.Agent)[of.ID]
}

// Once a drain is recorded, the worker receives it even if the caller has disconnected.
func TestOperator_DrainReachesTheWorkerAfterItsCallerDisconnected(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	ctx, leave := context.WithCancel(t.Context())
	r.onSetDesired = leave
	_, err := r.Drain(ctx, "a", "", &troupev1.ShutdownRequest{Drain: durationpb.New(testTimeout), Reason: "an upgrade"})
	require.ErrorIs(t, err, context.Canceled)
	await(t, "it ends", func() bool { return w.instance.Status().State == lifecycle.Terminated })
	await(t, "its desired state is removed", func() bool { return r.recordedState(t, "research", "a").Kind == "" })
}

// When the operator stops, it no longer waits for its drains, but the workers continue them.
func TestOperator_StopEndsBackgroundDrains(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	_, end, err := w.instance.Admit(t.Context())
	require.NoError(t, err)
	defer end(nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go func() {
		await(t, "it drains", func() bool { return w.instance.Status().State == lifecycle.ShuttingDown })
		leave()
	}()
	_, err = r.Drain(ctx, "a", "", &troupev1.ShutdownRequest{Drain: durationpb.New(time.Minute)})
	require.ErrorIs(t, err, context.Canceled)
	r.addWorker(t, "research", "b")
	r.stop()
	require.Equal(t, lifecycle.ShuttingDown, w.instance.Status().State)
	_, err = r.Drain(t.Context(), "b", "", &troupev1.ShutdownRequest{})
	require.True(t, failure.Is(err, failure.InstanceDraining), "%v", err)
}

// A recorded drain may never have reached its worker, because the orchestrator died. Resume then makes the
// instance run again.
func TestOperator_ResumeEndsADrainThatTheWorkerNeverReceived(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	require.NoError(t, r.registry.SetDesired(t.Context(), registry.DesiredState{Key: key, Kind: registry.Drain}))
	await(t, "it is known", func() bool { return r.instances.Desired().Get(key).Kind == registry.Drain })
	outcomes, err := r.Pause(t.Context(), "research", "", 0)
	require.NoError(t, err)
	require.True(t, failure.Is(outcomes[0].Err, failure.InstanceDraining), "%v", outcomes[0].Err)
	require.ErrorContains(t, outcomes[0].Err, "resume")

	outcomes, err = r.Resume(t.Context(), "research", "")
	require.NoError(t, err)
	require.NoError(t, outcomes[0].Err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_READY, outcomes[0].Status.GetState())
	require.True(t, r.getsSteps(t, key))
	require.Equal(t, lifecycle.Ready, w.instance.Status().State)
}

func TestOperator_ResumeKeepsADrainThatTheWorkerConfirms(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	_, end, err := w.instance.Admit(t.Context())
	require.NoError(t, err)
	w.registration = nopRegistration{w.registration} // so that it stays known while it drains
	go func() { _ = w.instance.Shutdown(context.WithoutCancel(t.Context()), testTimeout, "") }()
	await(t, "it drains", func() bool { return w.instance.Status().State == lifecycle.ShuttingDown })
	require.NoError(t, r.registry.SetDesired(t.Context(), registry.DesiredState{Key: key, Kind: registry.Drain}))
	r.register(t, nil, "research", "lost", loopback.Address(t))
	require.NoError(t, r.registry.SetDesired(t.Context(), registry.DesiredState{Key: registry.Key{Agent: "research", ID: "lost"}, Kind: registry.Drain}))
	await(t, "it is known", func() bool { return len(r.routableIDs("research")) == 0 })
	outcomes, err := r.Resume(t.Context(), "research", "")
	require.NoError(t, err)
	for _, out := range outcomes {
		require.True(t, failure.Is(out.Err, failure.InstanceDraining), "%v", out.Err)
	}
	require.Equal(t, registry.Drain, r.recordedState(t, "research", "a").Kind)
	require.Equal(t, registry.Drain, r.recordedState(t, "research", "lost").Kind, "the desired state is unchanged")
	end(nil)
}

// nopRegistration is a registration whose Close does nothing.
type nopRegistration struct{ registry.Registration }

func (nopRegistration) Close(context.Context) error { return nil }

// A desired state may be recorded although the answer of the registry was lost. It is reverted once it is seen.
func TestOperator_RevertsDesiredStatesInDoubt(t *testing.T) {
	for name, verb := range map[string]func(*operatorFixture) error{
		"pause": func(r *operatorFixture) error { _, err := r.Pause(t.Context(), "research", "", 0); return err },
		"drain": func(r *operatorFixture) error {
			_, err := r.Drain(t.Context(), "a", "", &troupev1.ShutdownRequest{})
			return err
		},
		"resume": func(r *operatorFixture) error { _, err := r.Resume(t.Context(), "research", ""); return err },
	} {
		t.Run(name, func(t *testing.T) {
			r := newOperatorFixture(t)
			w := r.addWorker(t, "research", "a")
			r.addWorker(t, "research", "b")
			paused := name == "resume"
			if paused {
				_, err := r.Pause(t.Context(), "research", "before", 0)
				require.NoError(t, err)
			}
			before := len(w.calls())
			r.losesAnswers.Store(true)
			err := verb(r)
			require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
			require.ErrorContains(t, err, "the registry does not answer")
			require.NotEqual(t, registry.DesiredKind(""), r.recordedState(t, "research", "a").Kind, "the first was recorded")
			r.losesAnswers.Store(false)
			r.addWorker(t, "other", "o") // a change, so that it is retried now
			await(t, "it is taken back", func() bool {
				return r.getsSteps(t, key) != paused && (!paused || r.recordedState(t, "research", "a").Kind == registry.Pause)
			})
			require.Len(t, w.calls(), before, "no worker was asked")
		})
	}
}

// The shorter of two overlapping pauses does not end the longer one, whichever started first.
func TestOperator_TimedOutPauseDoesNotEndALongerPause(t *testing.T) {
	for _, hastyFirst := range []bool{true, false} {
		r := newOperatorFixture(t)
		w := r.addWorker(t, "research", "a")
		_, end, err := w.instance.Admit(t.Context())
		require.NoError(t, err)
		type answer struct {
			outcomes []Outcome
			err      error
		}
		pause := func(within time.Duration) <-chan answer {
			ended := make(chan answer, 1)
			go func() {
				outcomes, err := r.Pause(t.Context(), "research", "", within)
				ended <- answer{outcomes, err}
			}()
			<-w.paused
			return ended
		}
		var hasty, patient <-chan answer
		if hastyFirst {
			hasty = pause(500 * time.Millisecond)
			patient = pause(testTimeout)
		} else {
			patient = pause(testTimeout)
			hasty = pause(500 * time.Millisecond)
		}
		got := <-hasty
		require.NoError(t, got.err)
		require.True(t, failure.Is(got.outcomes[0].Err, failure.AgentTimeout), "%v", got.outcomes[0].Err)
		require.ErrorContains(t, got.outcomes[0].Err, "another pause still waits")
		require.True(t, w.instance.Status().Pausing)
		require.Empty(t, r.routableIDs("research"))
		end(nil)
		got = <-patient
		require.NoError(t, got.err)
		require.NoError(t, got.outcomes[0].Err)
		require.Equal(t, lifecycle.Paused, w.instance.Status().State)
		require.Equal(t, registry.Pause, r.recordedState(t, "research", "a").Kind)
	}
}

// After two failed pauses the instance runs, although each pause found the other's desired state.
func TestOperator_RevertsTwoFailedPauses(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	r.register(t, nil, "research", "lost", loopback.Address(t))
	_, end, err := w.instance.Admit(t.Context())
	require.NoError(t, err)
	defer end(nil)
	ended := make(chan error, 2)
	for _, within := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
		go func() { _, err := r.Pause(t.Context(), "research", "", within); ended <- err }()
		<-w.paused
	}
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.True(t, r.getsSteps(t, key))
	require.Equal(t, registry.Run, r.recordedState(t, "research", "lost").Kind)
	require.Equal(t, lifecycle.Busy, w.instance.Status().State)
	require.False(t, w.instance.Status().Pausing)
}

// A pause whose answer was lost succeeds, because the worker's status shows that it is paused.
func TestOperator_PauseWithALostAnswerSucceeds(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	w.losesAnswers.Store(true)
	outcomes, err := r.Pause(t.Context(), "research", "", 0)
	require.NoError(t, err)
	require.NoError(t, outcomes[0].Err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_PAUSED, outcomes[0].Status.GetState())
	require.Equal(t, registry.Pause, r.recordedState(t, "research", "a").Kind)
	require.Equal(t, lifecycle.Paused, w.instance.Status().State)
}

// If the registry rejects the write that takes a desired state back, the state is taken back once the registry accepts
// writes again.
func TestOperator_RevertsDesiredStatesOnceTheRegistryIsBack(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	_, end, err := w.instance.Admit(t.Context())
	require.NoError(t, err)
	defer end(nil)
	r.onSetDesired = func() { r.rejectsWrites.Store(true) }
	outcomes, err := r.Pause(t.Context(), "research", "", 300*time.Millisecond)
	require.NoError(t, err)
	require.Error(t, outcomes[0].Err)
	require.Equal(t, registry.Pause, r.recordedState(t, "research", "a").Kind)
	r.onSetDesired = nil
	r.rejectsWrites.Store(false)
	r.addWorker(t, "other", "o") // a change, so that it is retried now
	await(t, "it is taken back", func() bool { return r.getsSteps(t, key) })
}

// The registered state takes precedence over the worker's lifecycle. A worker that never reached its memory
// service is READY in its lifecycle, but INITIALIZING for the mesh.
func TestOperator_ConfirmReturnsTheRegisteredState(t *testing.T) {
	r := newOperatorFixture(t)
	r.addWorker(t, "research", "a")
	in := r.instances.Instances()[0]
	for registered, want := range map[lifecycle.State]lifecycle.State{
		lifecycle.Ready: lifecycle.Ready, lifecycle.Paused: lifecycle.Ready, lifecycle.Initializing: lifecycle.Initializing,
	} {
		in.State = registered
		got, ok := r.ConfirmIdentity(t.Context(), in)
		require.True(t, ok)
		require.Equal(t, want, got.State, registered)
	}
	in.ID = "b"
	_, ok := r.ConfirmIdentity(t.Context(), in)
	require.False(t, ok, "another is there")
}
