// Package attack attacks the ports of a mesh with raw bytes, malformed frames, and invalid input to every method
// (guarantees S20 and 3.6).
package attack

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start")) // started by the Gemini SDK
}

// waitTimeout bounds every wait. It is long enough for a busy machine.
const waitTimeout = 30 * time.Second

// rawCodec is a gRPC codec that sends and receives arbitrary bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

// sendBytes calls a method with one message of arbitrary bytes. It reads responses until the call ends, and
// returns their number and the error that ended the call.
func sendBytes(ctx context.Context, conn *grpc.ClientConn, method string, body []byte, opts ...grpc.CallOption) (answers int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(ctx, desc, method, append(opts, grpc.ForceCodecV2(rawCodec{}))...)
	if err != nil {
		return 0, err
	}
	_ = stream.SendMsg(&body) // the response contains the error
	_ = stream.CloseSend()
	for {
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return answers, err
		}
		answers++
	}
}

// goodClient makes valid calls continuously while the mesh is attacked.
type goodClient struct {
	conn                *grpc.ClientConn
	stop                context.CancelFunc
	running             sync.WaitGroup
	successes, failures int
	lastErr             error
}

// startClient starts a client that lists the agents repeatedly until finish is called.
func startClient(t testing.TB, m *rig.Mesh) *goodClient {
	t.Helper()
	conn, err := rpc.Dial(m.Address(rig.Orchestrator), telemetry.Discard())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // also for benchmarks, whose context is older
	g := &goodClient{conn: conn, stop: stop}
	client := troupev1.NewOrchestratorServiceClient(conn)
	began := make(chan struct{})
	g.running.Go(func() {
		pace := time.NewTicker(time.Millisecond) // slower than the rate limit of one caller
		defer pace.Stop()
		for ctx.Err() == nil {
			<-pace.C
			_, err := client.ListAgents(ctx, &troupev1.ListAgentsRequest{})
			if ctx.Err() != nil {
				return
			}
			if g.successes++; err != nil {
				g.failures, g.lastErr = g.failures+1, err
			}
			if g.successes == 1 {
				close(began)
			}
		}
	})
	<-began
	return g
}

// finish stops the client and returns how many calls it made.
func (g *goodClient) finish(t testing.TB) int {
	t.Helper()
	g.stop()
	g.running.Wait()
	require.NoError(t, g.conn.Close())
	require.Zero(t, g.failures, "calls of a good client failed, the last one with %v", g.lastErr)
	return g.successes
}

// requireTurnSucceeds runs one turn and requires that it succeeds.
func requireTurnSucceeds(t testing.TB, m *rig.Mesh) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout) //nolint:usetesting // also for what runs behind a test
	defer cancel()
	conn, err := rpc.Dial(m.Address(rig.Orchestrator), telemetry.Discard())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	stream, err := troupev1.NewOrchestratorServiceClient(conn).Orchestrate(ctx, &troupev1.OrchestrateRequest{
		Input: &troupev1.OrchestrateRequest_Text{Text: "What may an agent write?"},
	})
	require.NoError(t, err)
	for {
		resp, err := stream.Recv()
		require.NoError(t, err, "%v", status.Convert(err).Details())
		if r := resp.GetEvent().GetTurnResult(); r != nil {
			require.Nil(t, r.GetFailure())
			return
		}
	}
}
