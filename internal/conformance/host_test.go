package conformance

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// fakeHost is a ConformanceService whose instances are reference instances, with at most one planted fault.
type fakeHost struct {
	troupev1.UnimplementedConformanceServiceServer
	fault fault

	mu        sync.Mutex
	instances map[string]func() // functions that drop the instances, by instance id
}

// serveHost serves a fakeHost until the test ends, and returns its address.
func serveHost(t *testing.T, f fault) string {
	t.Helper()
	h := &fakeHost{fault: f, instances: map[string]func(){}}
	address, stop, err := serveGRPC(func(s *grpc.Server) { troupev1.RegisterConformanceServiceServer(s, h) })
	require.NoError(t, err)
	t.Cleanup(func() {
		stop()
		for _, drop := range h.instances {
			drop()
		}
	})
	return address
}

// MakeInstance implements troupev1.ConformanceServiceServer.
func (h *fakeHost) MakeInstance(_ context.Context, req *troupev1.MakeInstanceRequest) (*troupev1.MakeInstanceResponse, error) {
	memory, err := rpc.Dial(req.GetMemoryAddress(), telemetry.Discard())
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	in := newReference(id, req, troupev1.NewMemoryServiceClient(memory), h.fault)
	address, stop, err := serveGRPC(func(s *grpc.Server) {
		troupev1.RegisterLifecycleServiceServer(s, in)
		troupev1.RegisterAgentServiceServer(s, in)
	})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instances[id] = func() {
		close(in.dropped)
		stop()
		<-in.beginShutdown(context.Background(), 0, "dropped").done
		in.hooks.Wait()
		_ = memory.Close()
	}
	return &troupev1.MakeInstanceResponse{InstanceId: id, Address: address, Agent: agentName}, nil
}

// DropInstance implements troupev1.ConformanceServiceServer.
func (h *fakeHost) DropInstance(_ context.Context, req *troupev1.DropInstanceRequest) (*troupev1.DropInstanceResponse, error) {
	h.mu.Lock()
	drop := h.instances[req.GetInstanceId()]
	delete(h.instances, req.GetInstanceId())
	h.mu.Unlock()
	if drop != nil {
		drop()
	}
	return &troupev1.DropInstanceResponse{}, nil
}

// serveGRPC serves on a free loopback port, as internal/rpc does. It validates requests by the rules in the .proto
// files and sends errors as gRPC statuses.
func serveGRPC(register func(*grpc.Server)) (address string, stop func(), _ error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := rpc.Validate(req.(proto.Message)); err != nil {
				return nil, grpcfailure.ToStatus(err)
			}
			reply, err := next(ctx, req)
			return reply, grpcfailure.ToStatus(err)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return grpcfailure.ToStatus(next(srv, validatingStream{ss}))
		}),
		grpc.WaitForHandlers(true),
	)
	register(s)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(lis) }()
	return lis.Addr().String(), func() { s.Stop(); <-ended }, nil
}

type validatingStream struct{ grpc.ServerStream }

func (s validatingStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return rpc.Validate(m.(proto.Message))
}
