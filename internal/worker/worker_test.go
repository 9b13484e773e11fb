package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/loopback"
)

// Req: LC-7, LC-8, LC-16
func TestWorker_RegistersAsInitializingAndThenAsReady(t *testing.T) {
	s := newWorkerEnv(t)
	resource := newGatedTool("gate")
	r := s.startWithoutWaiting(t, agent.Config{
		Name: "a", Model: scripted.New(), Tools: []tool.Tool{resource}, Capacity: 3, Description: "Does things.",
		Capabilities: []string{"maps", "gpu"}, ToolCapabilities: map[string][]string{"gate": {"wait"}},
	})
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Initializing })
	in := s.Known[r.registryKey()]
	require.Equal(t, r.grpc, in.Address)
	require.Equal(t, 3, in.Capacity)
	require.Equal(t, "Does things.", in.Description)
	require.Equal(t, []string{"gpu", "maps"}, in.Capabilities)
	require.Equal(t, []registry.Tool{{Name: "gate", Capabilities: []string{"wait"}}}, in.Tools)
	r.awaitReadiness(t, http.StatusServiceUnavailable, "lifecycle: initializing")

	resource.startResult <- nil
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Ready })
	require.Equal(t, in.Incarnation, s.Known[r.registryKey()].Incarnation, "the same registration")
	receive(t, r.ready)
	r.awaitReadiness(t, http.StatusOK, "ok")
	resp, err := r.Startup(t.Context(), &troupev1.StartupRequest{})
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_READY, resp.GetStatus().GetState(), "a second start is a no-op")
	require.NoError(t, r.stop())
	receive(t, resource.closed)
}

func TestWorker_RegistersAPause(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New()})
	for range 2 { // the second pause changes nothing
		_, err := r.Pause(t.Context(), &troupev1.PauseRequest{Reason: "maintenance"})
		require.NoError(t, err)
	}
	require.Equal(t, "maintenance", r.status(t).GetReason())
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Paused })
	r.awaitReadiness(t, http.StatusServiceUnavailable, "lifecycle: paused")
	for range 2 {
		_, err := r.Resume(t.Context(), &troupev1.ResumeRequest{})
		require.NoError(t, err)
	}
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Ready })
}

// Req: LC-23, LC-38
func TestWorker_ShutdownOverRPCDeregistersAndEndsTheProcess(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New()})
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Ready })
	before, err := r.GetMetrics(t.Context(), &troupev1.GetMetricsRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 2, before.GetStateTransitions())
	require.Positive(t, before.GetStartupTime().AsDuration())
	require.Zero(t, before.GetShutdownTime().AsDuration())

	resp, err := r.Shutdown(t.Context(), &troupev1.ShutdownRequest{Reason: "scaled down", Drain: durationpb.New(time.Second)})
	require.NoError(t, err)
	require.Equal(t, troupev1.InstanceState_INSTANCE_STATE_TERMINATED, resp.GetStatus().GetState())
	require.Empty(t, resp.GetErrors())
	s.Until(func() bool { return len(s.Known) == 0 })
	require.NoError(t, r.awaitEnd(t))

	var logged []string
	for _, line := range r.logs.FilterMessage("state changed").All() {
		fields := line.ContextMap()
		require.Len(t, fields["trace"], 32)
		require.Positive(t, fields["lasted"])
		logged = append(logged, fmt.Sprintf("%s → %s by %q: %q", fields["from"], fields["to"], fields["caller"], fields["reason"]))
	}
	require.Equal(t, []string{
		`uninitialized → initializing by "": ""`, `initializing → ready by "": ""`,
		`ready → shutting_down by "anybody": "scaled down"`, `shutting_down → terminated by "anybody": "scaled down"`,
	}, logged)
}

// A failed start ends the process with the reason and leaves no registration.
// Req: LC-10
func TestWorker_FailedStartLeavesNoRegistration(t *testing.T) {
	s := newWorkerEnv(t)
	require.Empty(t, s.NextList())
	first, second := newGatedTool("first"), newGatedTool("second")
	first.startResult <- nil
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{first, second}})
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Initializing })
	second.startResult <- errors.New("no index there")
	err := r.awaitEnd(t)
	s.Until(func() bool { return len(s.Known) == 0 })
	require.ErrorContains(t, err, "tool second of agent a did not start: no index there")
	receive(t, first.closed)
	require.Equal(t, failure.ResourceTool, failure.ModeOf(err))
	select {
	case <-r.ready:
		require.Fail(t, "it must not become ready")
	default:
	}
}

// A worker fails if its instance id is already registered, because no orchestrator would find it.
// Req: LC-16
func TestWorker_RejectedRegistrationIsAnError(t *testing.T) {
	s := newWorkerEnv(t)
	s.registrationTTL = 2 * time.Second
	first := s.start(t, agent.Config{Name: "a", Model: scripted.New()})
	s.Until(func() bool { return s.Known[first.registryKey()].State == lifecycle.Ready })
	resource := newGatedTool("gate")
	resource.startResult <- nil
	second := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{resource}})
	err := second.awaitEnd(t) // when the other can no longer be a crashed predecessor
	require.Equal(t, failure.AgentState, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "registered already")
	receive(t, resource.closed)
	select {
	case <-second.ready:
		require.Fail(t, "it must not become ready")
	default:
	}
	require.Equal(t, first.grpc, s.Known[first.registryKey()].Address)
	require.NoError(t, first.stop())
}

// unclosableTool is a tool whose Close fails.
type unclosableTool struct{ *gatedTool }

func (unclosableTool) Start(context.Context) error { return nil }

func (unclosableTool) Close() error { return errors.New("the index is locked") }

// The errors of a shutdown over RPC are logged with the phase in which they occurred.
// Req: LC-17
func TestWorker_LogsShutdownErrors(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{unclosableTool{newGatedTool("stuck")}}})
	resp, err := r.Shutdown(t.Context(), &troupev1.ShutdownRequest{Drain: durationpb.New(time.Second)})
	require.NoError(t, err)
	require.Len(t, resp.GetErrors(), 1)
	require.NoError(t, r.awaitEnd(t))
	logged := r.logs.FilterMessage("a step of the lifecycle failed").All()
	require.Len(t, logged, 1)
	require.Equal(t, "stop", logged[0].ContextMap()["step"])
	require.Contains(t, logged[0].ContextMap()["error"], "the index is locked")
}

// Req: LC-12
func TestWorker_HangingStartEndsAtItsTimeout(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{newGatedTool("gate")}, Lifecycle: agent.Lifecycle{Timeout: 50 * time.Millisecond}})
	require.ErrorContains(t, r.awaitEnd(t), "gate")
	s.Until(func() bool { return len(s.Known) == 0 })
}

func TestWorker_IsAliveButNotReadyWithoutEtcd(t *testing.T) {
	s := newWorkerEnv(t)
	s.etcd.Stop()
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New()})
	awaitCondition(t, "the instance itself is ready", func() bool {
		return r.status(t).GetState() == troupev1.InstanceState_INSTANCE_STATE_READY
	})
	code, _ := r.probe(t, "/livez")
	require.Equal(t, http.StatusOK, code)
	r.awaitReadiness(t, http.StatusServiceUnavailable, "registry: not yet")
	awaitCondition(t, "the log names the address", func() bool {
		for _, line := range r.logs.FilterMessage("not registered yet; still trying").All() {
			why, _ := line.ContextMap()["error"].(string)
			return strings.Contains(why, s.etcd.Endpoints()[0])
		}
		return false
	})

	s.etcd.Start()
	receive(t, r.ready)
	s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Ready })
	r.awaitReadiness(t, http.StatusOK, "ok")
}

// A stop does not wait for an unreachable etcd.
func TestWorker_StopsWithoutEtcd(t *testing.T) {
	s := newWorkerEnv(t)
	s.etcd.Stop()
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New()})
	awaitCondition(t, "the instance itself is ready", func() bool {
		return r.status(t).GetState() == troupev1.InstanceState_INSTANCE_STATE_READY
	})
	require.NoError(t, r.stop())
}

func TestNew_NamesThePortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", anyPort)
	require.NoError(t, err)
	defer taken.Close()
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New()})
	require.NoError(t, err)
	for flag, cfg := range map[string]worker.Config{
		"--grpc-addr": {GRPCAddr: taken.Addr().String(), HTTPAddr: anyPort},
		"--http-addr": {GRPCAddr: anyPort, HTTPAddr: taken.Addr().String()},
	} {
		cfg.Etcd, cfg.Memory = []string{"127.0.0.1:1"}, "127.0.0.1:1"
		_, err := worker.New(telemetry.Discard(), cfg, a)
		require.ErrorContains(t, err, "worker a: "+flag+": cannot listen on "+taken.Addr().String())
		require.ErrorContains(t, err, "choose another address")
	}
}

func TestClose_ReleasesThePortsOfAWorkerThatNeverRan(t *testing.T) {
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New()})
	require.NoError(t, err)
	address := loopback.Address(t)
	w, err := worker.New(telemetry.Discard(), worker.Config{GRPCAddr: address, HTTPAddr: anyPort, Etcd: []string{"127.0.0.1:1"}, Memory: "127.0.0.1:1"}, a)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	awaitCondition(t, "the port is closed", func() bool { // not at once: a child process may have inherited it
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

func TestConfig_RejectsInvalidSettings(t *testing.T) {
	good := worker.Config{Etcd: []string{"127.0.0.1:2379"}, Memory: "127.0.0.1:7401"}
	require.NoError(t, good.Validate())
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New()})
	require.NoError(t, err)
	for want, change := range map[string]func(*worker.Config){
		"--drain":                       func(c *worker.Config) { c.Drain = -time.Second },
		"--etcd":                        func(c *worker.Config) { c.Etcd = nil },
		"--advertise-addr":              func(c *worker.Config) { c.AdvertiseAddr = "just-a-host" },
		`--advertise-addr: "[::]:7402"`: func(c *worker.Config) { c.AdvertiseAddr = "[::]:7402" },
		`--instance-id: "a/b"`:          func(c *worker.Config) { c.InstanceID = "a/b" },
		`--memory: "foo"`:               func(c *worker.Config) { c.Memory = "foo" },
		`--memory: ""`:                  func(c *worker.Config) { c.Memory = "" },
	} {
		bad := good
		change(&bad)
		require.ErrorContains(t, bad.Validate(), want)
		_, err := worker.New(telemetry.Discard(), bad, a)
		require.ErrorContains(t, err, want, "without flags")
	}
}

// A worker that listens on all interfaces must be given an address to advertise, because the listener has none
// that other machines could dial.
func TestNew_RequiresAnAdvertisedAddressOnAllInterfaces(t *testing.T) {
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New()})
	require.NoError(t, err)
	for _, everywhere := range []string{"0.0.0.0:0", "[::]:0", ":0", ""} {
		cfg := worker.Config{
			GRPCAddr: everywhere, HTTPAddr: anyPort, Etcd: []string{"127.0.0.1:1"}, Memory: "127.0.0.1:1",
			Identity: identity.Config{InsecurePlaintext: true},
		}
		_, err := worker.New(telemetry.Discard(), cfg, a)
		require.ErrorContains(t, err, "give --advertise-addr", everywhere)
		cfg.AdvertiseAddr = "a.example:7402"
		w, err := worker.New(telemetry.Discard(), cfg, a)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
}

// A worker that never reached the memory service is not registered as READY, and reports why. It could not store
// the replies of its models, so it must get no steps. Once it has reached the service, it stays READY during an
// outage, because otherwise all workers would become unavailable at once.
// Req: C-34
func TestWorker_RegistersReadyOnceTheMemoryServiceAnswers(t *testing.T) {
	s := newWorkerEnv(t)
	other := s.start(t, agent.Config{Name: "b", Model: scripted.New()})
	absent := loopback.Address(t)
	for _, wrong := range []string{other.grpc, absent} { // the server runs, but does not serve the memory service
		s.memoryAddr = wrong
		r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New()})
		awaitCondition(t, "the instance itself is ready", func() bool {
			return r.status(t).GetState() == troupev1.InstanceState_INSTANCE_STATE_READY
		})
		s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Initializing })
		r.awaitReadiness(t, http.StatusServiceUnavailable, "memory: "+wrong+" cannot be reached")
		awaitCondition(t, "the log says so once", func() bool { return r.logs.FilterMessage("waiting for a dependency").Len() > 0 })
		require.Equal(t, wrong, r.logs.FilterMessage("waiting for a dependency").All()[0].ContextMap()["address"])
		select {
		case <-r.ready:
			require.Fail(t, "it must not become ready")
		default:
		}
		if wrong != absent {
			require.NoError(t, r.stop())
			continue
		}
		_, p := s.startMemory(t, zap.NewNop(), absent)
		receive(t, r.ready)
		s.Until(func() bool { return s.Known[r.registryKey()].State == lifecycle.Ready })
		r.awaitReadiness(t, http.StatusOK, "ok")
		require.NoError(t, p.stop())
		r.awaitReadiness(t, http.StatusServiceUnavailable, "memory: "+absent+" cannot be reached")
		require.Equal(t, lifecycle.Ready, s.Known[r.registryKey()].State)
	}
}

// A worker registers the address that --advertise-addr gives.
func TestWorker_AdvertisesTheConfiguredAddress(t *testing.T) {
	s := newWorkerEnv(t)
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New()})
	require.NoError(t, err)
	w, err := worker.New(telemetry.Discard(), worker.Config{
		GRPCAddr: anyPort, HTTPAddr: anyPort, AdvertiseAddr: "a.example:7402", Etcd: s.etcd.Endpoints(), Memory: s.memoryAddr,
	}, a)
	require.NoError(t, err)
	p := startProcess(t, w.Run)
	receive(t, p.ready)
	s.Until(func() bool { return len(s.Known) == 1 })
	for key, in := range s.Known {
		require.Equal(t, "a.example:7402", in.Address)
		require.True(t, strings.HasPrefix(key.ID, "a-"), "an id is made: %s", key.ID)
	}
	require.NoError(t, p.stop())
}

// rejectionError returns the error of a call that was rejected before its step began. It requires that the call
// got no headers.
func rejectionError(t *testing.T, stream grpc.ServerStreamingClient[troupev1.ExecuteStepResponse]) error {
	t.Helper()
	header, _ := stream.Header()
	require.Nil(t, header, "headers would mean that the step was admitted")
	_, err := stream.Recv()
	return grpcfailure.FromStatus("test", err)
}

// A worker stores no conversation. Its agent starts without one, and its shutdown writes none.
// Req: LC-15, LC-21
func TestWorker_StoresNoConversation(t *testing.T) {
	s := newWorkerEnv(t)
	resource := newGatedTool("gate")
	resource.startResult <- nil
	s.memoryAddr = loopback.Address(t) // no server listens there
	r := s.startWithoutWaiting(t, agent.Config{Name: "a", Model: scripted.New(), Tools: []tool.Tool{resource}})
	awaitCondition(t, "the instance itself is ready", func() bool {
		return r.status(t).GetState() == troupev1.InstanceState_INSTANCE_STATE_READY
	})
	require.NoError(t, r.stop())
	receive(t, resource.closed)
	require.Empty(t, s.redis.Keys())
	stored, err := s.etcd.Client().Get(t.Context(), "/troupe/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, stored.Kvs)
}
