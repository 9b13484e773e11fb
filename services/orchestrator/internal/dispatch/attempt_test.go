package dispatch

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

func failedResult(stream troupev1.AgentService_ExecuteStepServer, mode failure.Mode) error {
	return errors.Join(stream.SendHeader(nil), stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{
		Result: &troupev1.StepResult{Step: 1, Agent: "a", Failure: grpcfailure.ToProto(failure.New(mode, "test", "it stopped"))},
	}}))
}

// A lost attempt is reported as an error that names the instance and the cause. A step that failed by itself is
// reported as a result.
func TestDispatcher_DistinguishesLostAttemptsFromFailedSteps(t *testing.T) {
	for name, c := range map[string]struct {
		script func(troupev1.AgentService_ExecuteStepServer) error
		lost   failure.Mode
		says   string
	}{
		"broken off": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), failure.New(failure.SystemNetwork, "test", "gone"))
			}, failure.SystemNetwork, "instance 1 of agent a went away while it worked",
		},
		"broken off before the header": {
			func(troupev1.AgentService_ExecuteStepServer) error {
				return failure.New(failure.SystemNetwork, "test", "gone")
			},
			failure.SystemNetwork, "instance 1 of agent a went away while it worked",
		},
		"silent": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				if err := s.SendHeader(nil); err != nil {
					return err
				}
				<-s.Context().Done()
				return s.Context().Err()
			}, failure.SystemNetwork, "instance 1 of agent a went silent while it worked",
		},
		"no result": {
			func(s troupev1.AgentService_ExecuteStepServer) error { return s.SendHeader(nil) },
			failure.AgentContract, "instance 1 of agent a ended the step without a result",
		},
		"drained": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return failedResult(s, failure.InstanceDraining)
			},
			failure.InstanceDraining, "it stopped",
		},
		"fenced": {
			func(s troupev1.AgentService_ExecuteStepServer) error { return failedResult(s, failure.Fenced) },
			failure.Fenced, "it stopped",
		},
		"lost the lease": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{
					Result: &troupev1.StepResult{Step: 1, Agent: "a", Failure: grpcfailure.ToProto(failure.New(failure.SystemNetwork, "test",
						"it stopped").With("lost_lease", "true"))},
				}}))
			}, failure.SystemNetwork, "it stopped",
		},
		"silent before the header": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				<-s.Context().Done()
				return s.Context().Err()
			}, failure.SystemNetwork, "instance 1 of agent a went silent while it worked",
		},
		"fenced before the header": {
			func(troupev1.AgentService_ExecuteStepServer) error {
				return failure.New(failure.Fenced, "test", "it runs here already")
			}, failure.Fenced, "instance 1 of agent a broke the step off: it runs here already",
		},
		"panicked": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				if err := s.SendHeader(nil); err != nil {
					return err
				}
				panic("broken")
			}, failure.Unknown, "instance 1 of agent a broke the step off: internal error",
		},
		"broke the contract": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), sendResult(s, strings.Repeat("a", 256<<10+1)))
			}, failure.AgentContract, "instance 1 of agent a broke the contract: result.text",
		},
		"broke the contract with its own events": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				err := s.SendHeader(nil)
				for range event.MaxCustomEvents + 1 {
					err = errors.Join(err, sendCustomEvent(s, "a", ""))
				}
				return err
			}, failure.AgentContract, `broke the contract: event "a": a step may emit at most 256 events of its own`,
		},
		"broke the contract with data that is no JSON": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), sendCustomEvent(s, "a", "{"))
			}, failure.AgentContract, `broke the contract: event "a": its data is not JSON`,
		},
		"broke the contract with too much data": {
			func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), sendCustomEvent(s, "a", `"`+strings.Repeat("x", 64<<10)+`"`))
			}, failure.AgentContract, "broke the contract: event.custom.data",
		},
		"failed": {
			func(s troupev1.AgentService_ExecuteStepServer) error { return failedResult(s, failure.ResourceTool) }, failure.ResourceTool, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := serveAgent(t, c.script)
			r := newDispatcherFixture(t, testTimeout, instance("1", address, 4))
			if strings.HasPrefix(name, "silent") { // the other streams end without a timeout
				r.maxSilence = 200 * time.Millisecond
			}
			got, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
			lost, ok := errors.AsType[*LostError](err)
			if c.says == "" {
				require.NoError(t, err)
				require.Equal(t, troupev1.FailureMode_FAILURE_MODE_RESOURCE_TOOL, got.GetFailure().GetMode())
				return
			}
			require.True(t, ok, "%v", err)
			require.Equal(t, "1", lost.Instance.ID)
			require.Equal(t, c.lost, lost.Failure.Mode)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, "1", lost.Failure.Facts["instance_id"])
			require.Equal(t, strings.HasPrefix(name, "silent"), r.isInBackoff(lost.Instance), "other steps pass it over")
			require.Equal(t, strings.HasPrefix(name, "broke the contract"), lost.ViolatesContract)
			require.Equal(t, name == "lost the lease", lost.IsMemoryOutage)
		})
	}
}

func sendCustomEvent(s troupev1.AgentService_ExecuteStepServer, name, data string) error {
	return s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: &troupev1.Event{
		Payload: &troupev1.Event_Custom{Custom: &troupev1.CustomEvent{Name: name, Data: data}},
	}}})
}

// isInBackoff reports whether the instance is skipped because it recently did not answer.
func (d *dispatcherFixture) isInBackoff(in registry.Instance) bool {
	return d.backoffs.Errors(in.Agent)[instances.IncarnationOf(in)] != nil
}

// Every item on the stream, heartbeats included, proves that the worker still works on the step.
func TestDispatcher_HeartbeatShowsThatTheWorkerIsAlive(t *testing.T) {
	const silence = 400 * time.Millisecond
	_, address := serveAgent(t, func(s troupev1.AgentService_ExecuteStepServer) error {
		if err := s.SendHeader(nil); err != nil {
			return err
		}
		tick := time.NewTicker(silence / 8)
		defer tick.Stop()
		for range 16 {
			<-tick.C
			if err := s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Heartbeat{Heartbeat: &troupev1.Heartbeat{}}}); err != nil {
				return err
			}
		}
		return sendResult(s, "done")
	})
	r := newDispatcherFixture(t, testTimeout, instance("1", address, 4))
	r.maxSilence = silence
	var h callRecorder
	got, err := r.Execute(t.Context(), stepRequest(), nil, h.handler())
	require.NoError(t, err)
	require.Equal(t, "done", got.GetText())
	require.Zero(t, h.events, "a heartbeat is nothing that happened")
}

// An instance that lost the step is not tried again until it has restarted.
func TestDispatcher_SkipsAvoidedInstances(t *testing.T) {
	worker, first := serveAgent(t, completeStep)
	_, second := serveAgent(t, completeStep)
	lost := instance("1", first, 4)
	lost.Incarnation = 7
	r := newDispatcherFixture(t, testTimeout, lost, instance("2", second, 4))
	for range 4 { // round robin
		var h callRecorder
		_, err := r.Execute(t.Context(), stepRequest(), []registry.Instance{lost}, h.handler())
		require.NoError(t, err)
		require.Equal(t, []string{"2"}, h.started)
	}
	require.Zero(t, worker.callCount())

	r = newDispatcherFixture(t, 50*time.Millisecond, lost)
	_, err := r.Execute(t.Context(), stepRequest(), []registry.Instance{lost}, new(callRecorder).handler())
	require.Equal(t, failure.NoWorker, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "none is ready but those that lost it before")
	anew := lost
	anew.Incarnation = 8
	r.cache.Apply(registry.Update{Put: &anew})
	_, err = r.Execute(t.Context(), stepRequest(), []registry.Instance{lost}, new(callRecorder).handler())
	require.NoError(t, err)
}

// unresponsiveAddress returns an address that accepts connections but never answers, like a worker behind a broken
// network.
func unresponsiveAddress(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lis.Close()) })
	return lis.Addr().String()
}

// Waiting for an unresponsive instance takes time. So a step waits for at most one of them once its timeout has
// passed, or while another instance has a free slot.
func TestDispatcher_WaitsForAtMostOneUnresponsiveInstance(t *testing.T) {
	const many = 8
	var known []registry.Instance
	for n := range many {
		known = append(known, instance("mute-"+string(rune('0'+n)), unresponsiveAddress(t), 4))
	}
	t.Run("the patience ends", func(t *testing.T) {
		r := newDispatcherFixture(t, 100*time.Millisecond, known...)
		began := time.Now()
		_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
		require.Equal(t, failure.NoWorker, failure.ModeOf(err), "%v", err)
		require.Less(t, time.Since(began), many*connection.Timeout/2)
	})
	t.Run("a place is freed", func(t *testing.T) {
		working, release := make(chan struct{}, 1), make(chan struct{})
		_, address := serveAgent(t, func(s troupev1.AgentService_ExecuteStepServer) error {
			if err := s.SendHeader(nil); err != nil {
				return err
			}
			working <- struct{}{}
			<-release
			return sendResult(s, "done")
		})
		busy := instance("busy", address, 1)
		r := newDispatcherFixture(t, testTimeout, busy)
		ended := make(chan error, 2)
		execute := func() {
			_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
			ended <- err
		}
		go execute()
		receive(t, working)
		for n := range known {
			r.cache.Apply(registry.Update{Put: &known[n]})
		}
		began := time.Now()
		go execute()
		require.Eventually(t, func() bool { // the step is trying the unresponsive instances
			return slices.ContainsFunc(known, func(in registry.Instance) bool { return r.isInBackoff(in) })
		}, testTimeout, 10*time.Millisecond)
		close(release)
		require.NoError(t, receive(t, ended))
		require.NoError(t, receive(t, ended))
		require.Less(t, time.Since(began), many*connection.Timeout/2)
	})
	t.Run("it is remembered", func(t *testing.T) {
		_, address := serveAgent(t, completeStep)
		r := newDispatcherFixture(t, testTimeout, known[0], instance("up", address, 4))
		for range 2 { // the first of them tries the unresponsive instance
			_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
			require.NoError(t, err)
		}
		require.True(t, r.isInBackoff(known[0]))
		anew := known[0]
		anew.Incarnation++
		require.False(t, r.isInBackoff(anew), "one that was started anew may answer")
	})
}
