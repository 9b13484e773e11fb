package operate

import (
	"context"
	"sync/atomic"
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

func TestOperator_PausesAndResumesEveryInstance(t *testing.T) {
	r := newOperatorFixture(t)
	a, b, other := r.addWorker(t, "research", "a"), r.addWorker(t, "research", "b"), r.addWorker(t, "synthesis", "a")
	for range 2 { // a repeated command changes nothing
		outcomes, err := r.Pause(t.Context(), "research", "a closer look", 0)
		require.NoError(t, err)
		require.Len(t, outcomes, 2)
		for i, w := range []*worker{a, b} {
			require.NoError(t, outcomes[i].Err)
			require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_PAUSED, outcomes[i].Status.GetState())
			require.Equal(t, "a closer look", outcomes[i].Status.GetReason())
			require.Equal(t, lifecycle.Paused, w.instance.Status().State)
		}
		require.Empty(t, r.routableIDs("research"), "though they are registered as READY")
		got := r.recordedState(t, "research", "a")
		require.Equal(t, registry.Pause, got.Kind)
		require.Equal(t, "a closer look", got.Reason)
	}
	require.Equal(t, lifecycle.Ready, other.instance.Status().State)
	require.Len(t, r.routableIDs("synthesis"), 1)

	outcomes, err := r.Resume(t.Context(), "research", "seen enough")
	require.NoError(t, err)
	require.Len(t, outcomes, 2)
	require.Equal(t, lifecycle.Ready, a.instance.Status().State)
	require.Equal(t, lifecycle.Ready, b.instance.Status().State)
	require.Len(t, r.routableIDs("research"), 2)
	require.Equal(t, registry.Run, r.recordedState(t, "research", "b").Kind)
}

// A pause takes effect on routing before the worker's running steps have ended. If the worker does not pause in
// time, the pause is reverted.
func TestOperator_RevertsAFailedPause(t *testing.T) {
	r := newOperatorFixture(t)
	busy, idle := r.addWorker(t, "research", "busy"), r.addWorker(t, "research", "idle")
	_, end, err := busy.instance.Admit(t.Context())
	require.NoError(t, err)
	defer end(nil)
	type answer struct {
		outcomes []Outcome
		err      error
	}
	ended := make(chan answer, 1)
	go func() {
		outcomes, err := r.Pause(t.Context(), "research", "", 500*time.Millisecond)
		ended <- answer{outcomes, err}
	}()
	<-busy.paused
	require.Empty(t, r.routableIDs("research"))
	got := <-ended
	require.NoError(t, got.err)
	require.True(t, failure.Is(got.outcomes[0].Err, failure.AgentTimeout), "%v", got.outcomes[0].Err)
	require.Nil(t, got.outcomes[0].Status)
	require.NoError(t, got.outcomes[1].Err)
	require.Equal(t, map[string]bool{"busy": true}, r.routableIDs("research"))
	require.Equal(t, registry.Run, r.recordedState(t, "research", "busy").Kind)
	require.Equal(t, lifecycle.Busy, busy.instance.Status().State)
	require.False(t, busy.instance.Status().Pausing, "it takes steps")
	require.Equal(t, lifecycle.Paused, idle.instance.Status().State)
}

func TestOperator_UnreachableWorkerDoesNotDelayOthers(t *testing.T) {
	r := newOperatorFixture(t)
	here := r.addWorker(t, "research", "here")
	r.register(t, nil, "research", "lost", loopback.Address(t))
	outcomes, err := r.Pause(t.Context(), "research", "", 0)
	require.NoError(t, err)
	require.NoError(t, outcomes[0].Err)
	require.Equal(t, lifecycle.Paused, here.instance.Status().State)
	require.True(t, failure.Is(outcomes[1].Err, failure.SystemNetwork), "%v", outcomes[1].Err)
	require.Equal(t, registry.Run, r.recordedState(t, "research", "lost").Kind)
}

// If the registry cannot be reached, commands fail and change nothing (guarantee F9).
func TestOperator_CommandsFailWithoutTheRegistry(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	r.rejectsWrites.Store(true)
	_, pauseErr := r.Pause(t.Context(), "research", "", 0)
	_, resumeErr := r.Resume(t.Context(), "research", "")
	_, drainErr := r.Drain(t.Context(), "a", "", &troupev1.ShutdownRequest{})
	for _, err := range []error{pauseErr, resumeErr, drainErr} {
		require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
		require.ErrorContains(t, err, "the registry does not answer")
	}
	require.Empty(t, w.calls())
	require.Equal(t, lifecycle.Ready, w.instance.Status().State)
	require.Len(t, r.routableIDs("research"), 1)
}

// Req: LC-23
func TestOperator_DrainsAnInstanceAndRemovesItsDesiredState(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	r.addWorker(t, "research", "b")
	_, end, err := w.instance.Admit(t.Context())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		resp, err := r.Drain(t.Context(), "a", "", &troupev1.ShutdownRequest{Drain: durationpb.New(testTimeout), Reason: "an upgrade"})
		if err == nil && resp.GetStatus().GetState() != troupev1.InstanceState_INSTANCE_STATE_TERMINATED {
			err = failure.New(failure.Unknown, "test", resp.String())
		}
		ended <- err
	}()
	await(t, "it drains", func() bool { return w.instance.Status().State == lifecycle.ShuttingDown })
	require.Equal(t, map[string]bool{"b": true}, r.routableIDs("research"))
	require.Equal(t, "an upgrade", w.instance.Status().Reason)
	select {
	case err := <-ended:
		require.Fail(t, "ended while a step ran", "%v", err)
	default:
	}
	end(nil)
	require.NoError(t, <-ended)
	require.Equal(t, lifecycle.Terminated, w.instance.Status().State)
	await(t, "what was wanted is forgotten", func() bool { return r.recordedState(t, "research", "a").Kind == "" })
	require.Empty(t, r.instances.Desired().Get(registry.Key{Agent: "research", ID: "a"}))
}

func TestOperator_ResumeDoesNotRevertADrain(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	r.addWorker(t, "research", "b")
	decided, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	r.onSetDesired = func() {
		if first.CompareAndSwap(false, true) { // the worker has not been asked yet
			close(decided)
			<-goOn
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.Drain(t.Context(), "a", "", &troupev1.ShutdownRequest{Drain: durationpb.New(testTimeout)})
		ended <- err
	}()
	<-decided
	await(t, "it drains", func() bool {
		return r.instances.Desired().Get(registry.Key{Agent: "research", ID: "a"}).Kind == registry.Drain
	})
	outcomes, err := r.Resume(t.Context(), "research", "")
	require.NoError(t, err)
	require.Len(t, outcomes, 2)
	require.True(t, failure.Is(outcomes[0].Err, failure.InstanceDraining), "%v", outcomes[0].Err)
	close(goOn)
	require.NoError(t, <-ended)
	require.NotContains(t, w.calls(), "resume")
}

// A drain continues after its caller has disconnected.
func TestOperator_DrainContinuesWithoutItsCaller(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	_, end, err := w.instance.Admit(t.Context())
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.Drain(ctx, "a", "research", &troupev1.ShutdownRequest{Drain: durationpb.New(testTimeout)})
		ended <- err
	}()
	await(t, "it drains", func() bool { return w.instance.Status().State == lifecycle.ShuttingDown })
	leave()
	require.Error(t, <-ended)
	end(nil)
	await(t, "it ends", func() bool { return w.instance.Status().State == lifecycle.Terminated })
	await(t, "it is forgotten", func() bool { return r.recordedState(t, "research", "a").Kind == "" })
}

func TestOperator_DescribesAnInstance(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	_, end, err := w.instance.Admit(t.Context())
	require.NoError(t, err)
	defer end(nil)
	d, err := r.Describe(t.Context(), "a", "")
	require.NoError(t, err)
	require.NoError(t, d.Err)
	require.Equal(t, "research", d.Instance.Agent)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_BUSY, d.Status.GetState())
	require.EqualValues(t, 1, d.Status.GetInFlight())
	require.EqualValues(t, 1, d.Metrics.GetTotalRequests())

	r.register(t, nil, "research", "lost", loopback.Address(t))
	d, err = r.Describe(t.Context(), "lost", "research")
	require.NoError(t, err)
	require.True(t, failure.Is(d.Err, failure.SystemNetwork), "%v", d.Err)
	require.Nil(t, d.Status)
	require.Equal(t, "1.2.0", d.Instance.Version)
}

func TestOperator_ReportsUnknownAndAmbiguousNames(t *testing.T) {
	r := newOperatorFixture(t)
	_, err := r.Pause(t.Context(), "research", "", 0)
	require.ErrorContains(t, err, `no instance of an agent "research" is registered; there are instances of: none`)
	r.addWorker(t, "research", "a")
	r.addWorker(t, "synthesis", "a")
	r.addWorker(t, "synthesis", "b")
	_, err = r.Resume(t.Context(), "reserch", "")
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
	require.ErrorContains(t, err, "there are instances of: research, synthesis")
	_, err = r.Drain(t.Context(), "c", "", &troupev1.ShutdownRequest{})
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
	require.ErrorContains(t, err, `no instance is called "c"; there are: a, a, b`)
	_, err = r.Describe(t.Context(), "c", "synthesis")
	require.ErrorContains(t, err, `no instance of agent synthesis is called "c"; there are: a, b`)
	_, err = r.Describe(t.Context(), "a", "")
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	require.ErrorContains(t, err, `instances of several agents are called "a"; name the agent: research, synthesis`)
}

// A drain for another version of the status changes nothing, and is not recorded.
func TestOperator_DrainsOnlyTheGivenStateVersion(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	version := w.instance.Status().Version
	_, err := r.Drain(t.Context(), "a", "", &troupev1.ShutdownRequest{IfStateVersion: new(version + 1)})
	require.True(t, failure.Is(err, failure.AgentState), "%v", err)
	require.ErrorContains(t, err, "with state_version 2; read its state and decide again")
	require.Equal(t, lifecycle.Ready, w.instance.Status().State)
	require.Empty(t, r.recordedState(t, "research", "a").Kind)
	require.Len(t, r.routableIDs("research"), 1)

	resp, err := r.Drain(t.Context(), "a", "", &troupev1.ShutdownRequest{IfStateVersion: new(version)})
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_TERMINATED, resp.GetStatus().GetState())
}

// Req: LC-36
func TestOperator_StartsAnInstanceWithSettings(t *testing.T) {
	r := newOperatorFixture(t)
	w := r.addWorker(t, "research", "a")
	asked := &troupev1.StartupRequest{
		Settings: &troupev1.LifecycleSettings{MaxRetries: new(int32(2)), CleanupOnError: new(false)}, IfStateVersion: new(w.instance.Status().Version),
	}
	status, err := r.Start(t.Context(), "a", "", asked)
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_READY, status.GetState())
	require.Equal(t, []string{"startup " + asked.String()}, w.calls())
	_, err = r.Start(t.Context(), "a", "", &troupev1.StartupRequest{IfStateVersion: new(uint64(7))})
	require.True(t, failure.Is(err, failure.AgentState), "%v", err)
	_, err = r.Start(t.Context(), "b", "", asked)
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
}
