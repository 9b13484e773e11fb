package worker_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// collectStream reads a stream to its end and returns its messages.
func collectStream(t *testing.T, r *runningWorker, after uint64) (first *troupev1.InstanceStatus, all []*troupev1.Transition, err error) {
	t.Helper()
	stream, err := r.WatchState(t.Context(), &troupev1.WatchStateRequest{AfterVersion: after})
	require.NoError(t, err)
	for {
		item, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return first, all, nil
		case err != nil:
			return first, all, grpcfailure.FromStatus("test", err)
		case item.GetTransition() == nil:
			require.Nil(t, first, "one item without a transition")
			first = item.GetStatus()
		default:
			all = append(all, item.GetTransition())
		}
	}
}

// Req: LC-6, LC-14
func TestWatchState_ReportsEveryTransition(t *testing.T) {
	s := newWorkerEnv(t)
	resource := newGatedTool("gate")
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{resource}})
	awaitCondition(t, "it starts", func() bool {
		return r.status(t).GetState() == troupev1.InstanceState_INSTANCE_STATE_INITIALIZING
	})
	type watched struct {
		first *troupev1.InstanceStatus
		all   []*troupev1.Transition
		err   error
	}
	done := make(chan watched, 1)
	go func() {
		first, all, err := collectStream(t, r, 0)
		done <- watched{first, all, err}
	}()
	resource.startResult <- nil
	receive(t, r.ready)
	_, err := r.Pause(t.Context(), &troupev1.PauseRequest{Reason: "a look"})
	require.NoError(t, err)
	_, err = r.Resume(t.Context(), &troupev1.ResumeRequest{})
	require.NoError(t, err)
	_, err = r.Shutdown(t.Context(), &troupev1.ShutdownRequest{Drain: durationpb.New(0), Reason: "the end"})
	require.NoError(t, err)

	got := receive(t, done)
	require.NoError(t, got.err)
	require.Equal(t, "i1", got.first.GetInstanceId())
	require.Equal(t, "a", got.first.GetAgent())
	var states []string
	for i, tr := range got.all {
		require.EqualValues(t, i+1, tr.GetVersion())
		require.Len(t, tr.GetTraceId(), 32)
		states = append(states, tr.GetTo().String()[len("INSTANCE_STATE_"):])
	}
	require.Equal(t, []string{"INITIALIZING", "READY", "PAUSED", "READY", "SHUTTING_DOWN", "TERMINATED"}, states)
	require.Equal(t, got.all[0].GetTraceId(), got.all[1].GetTraceId(), "one start")
	require.Equal(t, "a look", got.all[2].GetReason())
	require.NoError(t, r.awaitEnd(t))
}

func TestWatchState_RejectsAFutureVersion(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New()})
	_, _, err := collectStream(t, r, 100)
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "the instance is at version 2")
}

func TestOwnsState_ReturnsTheOwnerOfAKey(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New()})
	for key, want := range map[string]*troupev1.OwnsStateResponse{
		"_scratch": {Owner: troupev1.Owner_OWNER_AGENT, Owns: true, Declared: true},
		"counter":  {Owner: troupev1.Owner_OWNER_AGENT, Owns: true},
		"history":  {Owner: troupev1.Owner_OWNER_MEMORY, Declared: true},
		"routing":  {Owner: troupev1.Owner_OWNER_ORCHESTRATOR, Declared: true},
		"config":   {Owner: troupev1.Owner_OWNER_SHARED, Declared: true},
	} {
		got, err := r.OwnsState(t.Context(), &troupev1.OwnsStateRequest{Key: key})
		require.NoError(t, err)
		require.Equal(t, want.String(), got.String(), key)
	}
	_, err := r.OwnsState(t.Context(), &troupev1.OwnsStateRequest{})
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(grpcfailure.FromStatus("test", err)))
}

// LifecycleService starts an instance, shuts it down, and reports the keys that the agent owns. Each call runs in
// the context of its caller.
// Req: OC-22
func TestLifecycle_ServesStartupShutdownAndOwnership(t *testing.T) {
	s := newWorkerEnv(t)
	resource := newGatedTool("gate")
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{resource}})
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Initializing })
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := r.Startup(short, &troupev1.StartupRequest{})
	require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.SystemTimeout), "%v", err)
	resource.startResult <- nil
	begun, err := r.Startup(t.Context(), &troupev1.StartupRequest{})
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_READY, begun.GetStatus().GetState())

	for key, owns := range map[string]bool{"_scratch": true, "history": false, "routing": false} {
		got, err := r.OwnsState(t.Context(), &troupev1.OwnsStateRequest{Key: key})
		require.NoError(t, err)
		require.Equal(t, owns, got.GetOwns(), key)
	}
	ended, err := r.Shutdown(t.Context(), &troupev1.ShutdownRequest{Drain: durationpb.New(time.Second)})
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_TERMINATED, ended.GetStatus().GetState())
	receive(t, resource.closed)
	require.NoError(t, r.awaitEnd(t))
}
