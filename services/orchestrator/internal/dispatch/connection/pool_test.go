package connection

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// statusWorker is a worker that reports a fixed status.
type statusWorker struct {
	troupev1.UnimplementedLifecycleServiceServer
	status *troupev1.InstanceStatus
	err    error
}

func (s *statusWorker) GetState(context.Context, *troupev1.GetStateRequest) (*troupev1.GetStateResponse, error) {
	return &troupev1.GetStateResponse{Status: s.status}, s.err
}

func TestPool_CheckHealthIdentifiesTheInstance(t *testing.T) {
	worker := &statusWorker{}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	require.NoError(t, err)
	troupev1.RegisterLifecycleServiceServer(server, worker)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	pool := NewPool(telemetry.Discard(), rpc.Dial)
	t.Cleanup(pool.Close)
	in := registry.Instance{Agent: "a", ID: "1", Address: lis.Addr().String()}
	const expired = troupev1.LeaseState_LEASE_STATE_EXPIRED
	for _, c := range []struct {
		status *troupev1.InstanceStatus
		err    error
		want   instances.Health
	}{
		{&troupev1.InstanceStatus{InstanceId: "1", State: troupev1.InstanceState_INSTANCE_STATE_BUSY}, nil, instances.Serving},
		{&troupev1.InstanceStatus{State: troupev1.InstanceState_INSTANCE_STATE_READY}, nil, instances.Serving},
		{&troupev1.InstanceStatus{InstanceId: "1", State: troupev1.InstanceState_INSTANCE_STATE_PAUSED}, nil, instances.Serving},
		{&troupev1.InstanceStatus{InstanceId: "1", State: troupev1.InstanceState_INSTANCE_STATE_SHUTTING_DOWN}, nil, instances.NotServing},
		{&troupev1.InstanceStatus{InstanceId: "1", State: troupev1.InstanceState_INSTANCE_STATE_TERMINATED}, nil, instances.NotServing},
		{&troupev1.InstanceStatus{InstanceId: "1", State: troupev1.InstanceState_INSTANCE_STATE_READY, Lease: expired}, nil, instances.NotServing},
		{&troupev1.InstanceStatus{InstanceId: "2", State: troupev1.InstanceState_INSTANCE_STATE_READY}, nil, instances.Unreachable},
		{nil, failure.New(failure.SystemNetwork, "test", "no"), instances.Unreachable},
	} {
		worker.status, worker.err = c.status, c.err
		require.Equal(t, c.want, pool.CheckHealth(t.Context(), in), "%v", c.status)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	in.Address = closed.Addr().String()
	require.Equal(t, instances.Unreachable, pool.CheckHealth(t.Context(), in))
}
