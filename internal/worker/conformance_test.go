package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/conformance"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/internal/worker/conformancehost"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// The host starts and stops instances on request. Package conformance tests the instances themselves.
func TestHost_StartsAndStopsInstances(t *testing.T) {
	h, err := conformancehost.NewHost(telemetry.Discard(), worker.Config{GRPCAddr: anyPort})
	require.NoError(t, err)
	p := startProcess(t, h.Run)
	receive(t, p.ready)
	host := troupev1.NewConformanceServiceClient((&workerEnv{}).dial(t, identity.Worker, "", h.Addr()))
	_, err = host.MakeInstance(t.Context(), &troupev1.MakeInstanceRequest{})
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(grpcfailure.FromStatus("test", err)), "%v", err)

	hang := &troupev1.MakeInstanceRequest{
		Capacity: 1, MemoryAddress: "127.0.0.1:1",
		Startup: troupev1.HookBehavior_HOOK_BEHAVIOR_HANG, Shutdown: troupev1.HookBehavior_HOOK_BEHAVIOR_HANG,
	}
	made, err := host.MakeInstance(t.Context(), hang)
	require.NoError(t, err)
	instance := troupev1.NewLifecycleServiceClient((&workerEnv{}).dial(t, identity.Worker, "", made.GetAddress()))
	started := make(chan error, 1)
	go func() {
		_, err := instance.Startup(t.Context(), &troupev1.StartupRequest{})
		started <- err
	}()
	awaitCondition(t, "it starts", func() bool {
		resp, err := instance.GetState(t.Context(), &troupev1.GetStateRequest{})
		require.NoError(t, err)
		return resp.GetStatus().GetState() == troupev1.InstanceState_INSTANCE_STATE_INITIALIZING
	})
	for range 2 {
		_, err = host.DropInstance(t.Context(), &troupev1.DropInstanceRequest{InstanceId: made.GetInstanceId()})
		require.NoError(t, err)
	}
	require.Error(t, receive(t, started))

	_, err = host.MakeInstance(t.Context(), hang) // this instance is still running when the host stops
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, p.stop())
	require.Less(t, time.Since(began), waitTimeout)
}

// The worker of this package passes all checks of the conformance kit.
func TestHost_PassesTheConformanceKit(t *testing.T) {
	t.Parallel()
	h, err := conformancehost.NewHost(telemetry.Discard(), worker.Config{GRPCAddr: anyPort})
	require.NoError(t, err)
	receive(t, startProcess(t, h.Run).ready)
	report, err := conformance.Run(t.Context(), conformance.Config{Address: h.Addr(), Repeat: 2})
	require.NoError(t, err)
	var table strings.Builder
	require.NoError(t, report.WriteTable(&table, false))
	require.Zero(t, report.FailedCount(), "%s", &table)
}
