package clitest

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Serve starts a gRPC server that stops when the test ends, and returns its address.
func Serve(t *testing.T, register func(grpc.ServiceRegistrar)) string {
	t.Helper()
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{})
	require.NoError(t, err)
	register(server)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	return lis.Addr().String()
}

// TraceID is the trace id that a fake mesh reports for every turn.
const TraceID = "0af7651916cd43dd8448eb211c80319c"
