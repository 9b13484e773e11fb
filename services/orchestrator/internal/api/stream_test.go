package api

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait in these tests. It is far longer than any wait should take.
const testTimeout = 30 * time.Second

// fakeOrchestrator is an OrchestratorService that publishes the events of one trace.
type fakeOrchestrator struct {
	troupev1.UnimplementedOrchestratorServiceServer
	streams streams
	events  func(ctx context.Context) iter.Seq2[*troupev1.Event, error]
}

func (f *fakeOrchestrator) WatchTrace(_ *troupev1.WatchTraceRequest, stream troupev1.OrchestratorService_WatchTraceServer) error {
	return f.streams.sendAll(f.events(stream.Context()), func(e *troupev1.Event) error {
		return stream.Send(&troupev1.WatchTraceResponse{Event: e})
	})
}

// openWatch serves the events and opens one stream that watches them.
func openWatch(t *testing.T, sendTime time.Duration, events func(context.Context) iter.Seq2[*troupev1.Event,
	error],
) troupev1.OrchestratorService_WatchTraceClient {
	t.Helper()
	s := &fakeOrchestrator{streams: streams{sendTimeout: sendTime}, events: events}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{})
	require.NoError(t, err)
	troupev1.RegisterOrchestratorServiceServer(server, s)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	conn, err := rpc.Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		s.streams.sendersDone.Wait()
		require.NoError(t, conn.Close())
	})
	stream, err := troupev1.NewOrchestratorServiceClient(conn).WatchTrace(t.Context(), &troupev1.WatchTraceRequest{TraceId: strings.Repeat("a", 32)})
	require.NoError(t, err)
	return stream
}

// numberedEvents yields events of the given size, numbered from 1 to last, as fast as the consumer accepts them.
func numberedEvents(last uint64, size int) func(context.Context) iter.Seq2[*troupev1.Event, error] {
	return func(context.Context) iter.Seq2[*troupev1.Event, error] {
		return func(yield func(*troupev1.Event, error) bool) {
			for n := uint64(1); n <= last; n++ {
				e := &troupev1.Event{Sequence: n, Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Message: strings.Repeat("m", size)}}}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// readToEnd reads a stream to its end, requires ascending sequences, and returns the last one.
func readToEnd(t *testing.T, stream troupev1.OrchestratorService_WatchTraceClient) (last uint64, _ error) {
	t.Helper()
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, grpcfailure.FromStatus("test", err)
		}
		require.Equal(t, last+1, r.GetEvent().GetSequence())
		last++
	}
}

// A client that stops reading while many events wait gets slow_consumer with the sequence to resume from. No
// goroutine of its call leaks.
func TestStreams_DisconnectASlowClient(t *testing.T) {
	for name, size := range map[string]int{"by number": 900, "by size": 60_000} {
		t.Run(name, func(t *testing.T) {
			stopped := make(chan struct{})
			stream := openWatch(t, 50*time.Millisecond, func(ctx context.Context) iter.Seq2[*troupev1.Event, error] {
				return func(yield func(*troupev1.Event, error) bool) {
					defer close(stopped)
					numberedEvents(4096, size)(ctx)(yield)
				}
			})
			select {
			case <-stopped: // the client reads nothing
			case <-time.After(testTimeout):
				require.FailNow(t, "waited in vain")
			}
			last, err := readToEnd(t, stream)
			require.Equal(t, failure.SlowConsumer, failure.ModeOf(err), "%v", err)
			e, _ := errors.AsType[*failure.Error](err)
			after, parsed := strconv.ParseUint(e.Facts["resume_after"], 10, 64)
			require.NoError(t, parsed)
			require.LessOrEqual(t, after, last, "nothing is left out")
			require.GreaterOrEqual(t, after+1, last, "the one that was on its way may have come all the same")
			require.Positive(t, last)
			require.Less(t, last, uint64(4096))
		})
	}
}

// A client that keeps reading gets all events, no matter how many there are.
func TestStreams_SendAllEventsToAClientThatKeepsReading(t *testing.T) {
	stream := openWatch(t, testTimeout, numberedEvents(2000, 2000))
	last, err := readToEnd(t, stream)
	require.NoError(t, err)
	require.EqualValues(t, 2000, last)
}

// Events that precede an error are sent before the error.
func TestStreams_SendAnErrorAfterTheEvents(t *testing.T) {
	stream := openWatch(t, testTimeout, func(ctx context.Context) iter.Seq2[*troupev1.Event, error] {
		return func(yield func(*troupev1.Event, error) bool) {
			numberedEvents(200, 2000)(ctx)(yield)
			yield(nil, failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it"))
		}
	})
	last, err := readToEnd(t, stream)
	require.Equal(t, failure.TraceOrphaned, failure.ModeOf(err), "%v", err)
	require.EqualValues(t, 200, last)
}

// A client with a small backlog may read slowly while more events may come.
func TestStreams_WaitForAClientWithASmallBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s streams
		defer s.sendersDone.Wait()
		taken := make(chan struct{})
		err := s.sendAll(func(yield func(*troupev1.Event, error) bool) {
			numberedEvents(100, 5000)(t.Context())(yield)
			<-taken // more events may come
		}, func(e *troupev1.Event) error {
			switch e.GetSequence() {
			case 1:
				<-time.After(time.Hour)
			case 100:
				close(taken)
			}
			return nil
		})
		require.NoError(t, err)
	})
}

// After the last event, the stream of a client that does not read ends even with a small backlog. Otherwise its
// call would never end.
func TestStreams_DisconnectASlowClientAfterTheLastEvent(t *testing.T) {
	for name, ending := range map[string]error{"the end": nil, "an error": failure.New(failure.TraceOrphaned, "test", "no orchestrator drives it")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s streams
				defer s.sendersDone.Wait()
				began := time.Now()
				err := s.sendAll(func(yield func(*troupev1.Event, error) bool) {
					numberedEvents(10, 100)(t.Context())(yield)
					if ending != nil {
						yield(nil, ending)
					}
				}, func(e *troupev1.Event) error {
					switch s := e.GetSequence(); {
					case s < 4:
						<-time.After(sendTimeout - time.Second) // slow, but not stuck
					case s == 4:
						<-time.After(time.Hour)
					}
					return nil
				})
				require.Equal(t, failure.SlowConsumer, failure.ModeOf(err), "%v", err)
				e, _ := errors.AsType[*failure.Error](err)
				require.Equal(t, "3", e.Facts["resume_after"])
				require.Equal(t, 3*(sendTimeout-time.Second)+sendTimeout, time.Since(began))
			})
		})
	}
}
